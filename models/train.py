#!/usr/bin/python3
"""Trains a stateful LSTM classifier on the output of `killline features` and exports it to ONNX.

The data is split by time: the first part of the day trains, the next chooses the best epoch, the last is the test.
Normalisation is fitted on the training part only; labels that look across a border are left out. Each stream
(instrument) has its own state, carried from chunk to chunk (truncated back-propagation), zero at each part's start.

Writes into --out: model.onnx (input x, h, c; output logits, h, c), norm.json (for killline model pack) and
figures.json (the test figures, beside the simple predictors that a model must beat).

Needs Debian 12's python3-torch, python3-onnx and python3-numpy.
"""
import argparse
import json
import os
import sys
import time
import warnings

# The same numeric kernels on every x86-64-v3 machine, so that a seed gives the same weights; must precede torch.
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

X_ABS_MAX = 16 - 2.0**-7  # the kernel's clamp: KL_X_ABS_MAX of hls/kl_abi.h
SEGMENT_TICKS = 4096  # training only: streams are cut into pieces of this length
CLASSES = ["down", "flat", "up"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="directory that killline features wrote")
    parser.add_argument("--out", required=True, help="directory for the results")
    parser.add_argument("--provenance", default="{}", help="JSON object that is copied into the package")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=48, help="pieces of streams per step")
    parser.add_argument("--chunk", type=int, default=64, help="ticks of back-propagation")
    parser.add_argument("--rate", type=float, default=3e-3, help="largest learning rate")
    parser.add_argument("--warmup", type=int, default=50, help="first ticks of a stream that do not count")
    parser.add_argument("--train", type=float, default=0.70, help="the training part ends at this fraction")
    parser.add_argument("--validate", type=float, default=0.85, help="the validation part ends at this fraction")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


_last_progress = [0.0]


def progress(text, final=False):
    now = time.monotonic()
    if final or now - _last_progress[0] > 0.5:
        _last_progress[0] = now
        tty = sys.stderr.isatty()
        if tty or final:
            sys.stderr.write(("\r\033[K" if tty else "") + text + ("\n" if final else ""))
            sys.stderr.flush()


class Data:
    """The whole day: features, labels and the realised move at each tick, in time order."""

    def __init__(self, directory):
        with open(os.path.join(directory, "features.json")) as f:
            self.description = json.load(f)
        load = lambda name: np.load(os.path.join(directory, name))
        self.features, self.label, self.stream = load("features.npy"), load("labels.npy"), load("stream.npy")
        self.horizon = int(self.description["horizon_ticks"])
        self.rows_of = [np.flatnonzero(self.stream == s) for s in range(int(self.stream.max()) + 1)]
        # Persistence: the label of the tick `horizon` ticks ago is just known now.
        self.known = np.ones_like(self.label)
        for rows in self.rows_of:
            past = self.label[rows[: -self.horizon]]
            self.known[rows[self.horizon:]] = np.where(past < 0, 1, past)

    def part(self, begin, end, warmup):
        """Per stream the rows in [begin, end), and which count: labelled, warm, not looking across the border."""
        for rows in self.rows_of:
            rows = rows[(rows >= begin) & (rows < end)]
            counts = self.label[rows] >= 0
            counts[:warmup] = False
            counts[max(0, len(rows) - self.horizon):] = False
            yield rows, counts


class Net(nn.Module):
    def __init__(self, n_in, n_hidden, n_layer, n_class):
        super().__init__()
        self.lstm = nn.LSTM(n_in, n_hidden, n_layer, batch_first=True)
        self.head = nn.Linear(n_hidden, n_class)
        with torch.no_grad():  # forget gates start open: PyTorch's rows are i, f, g, o
            for name, bias in self.lstm.named_parameters():
                if name.startswith("bias_ih"):
                    bias[n_hidden: 2 * n_hidden] += 1

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x, (h, c))
        return self.head(y), h, c

    def zero_state(self, n):
        shape = (self.lstm.num_layers, n, self.lstm.hidden_size)
        return torch.zeros(shape), torch.zeros(shape)


def pieces(data, x, begin, end, warmup, length):
    """Streams of one part, cut to `length` ticks (None: whole) and padded: x [n, t, f], label [n, t], -1 = ignore."""
    xs, labels = [], []
    for rows, counts in data.part(begin, end, warmup):
        label = np.where(counts, data.label[rows], -1)
        for start in range(0, len(rows), length or max(1, len(rows))):
            piece = slice(start, start + (length or len(rows)))
            piece_label = label[piece].copy()
            piece_label[:warmup] = -1  # a piece starts from a zero state
            xs.append(x[rows[piece]])
            labels.append(piece_label)
    longest = max(map(len, xs))
    out_x = np.zeros((len(xs), longest, x.shape[1]), np.float32)
    out_label = np.full((len(xs), longest), -1, np.int64)
    for i, (piece_x, piece_label) in enumerate(zip(xs, labels)):
        out_x[i, : len(piece_x)], out_label[i, : len(piece_label)] = piece_x, piece_label
    return torch.from_numpy(out_x), torch.from_numpy(out_label)


def evaluate(net, x, label, chunk=512):
    """Loss and predicted classes of the labelled ticks."""
    net.eval()
    h, c = net.zero_state(len(x))
    loss, predicted, expected = 0.0, [], []
    with torch.no_grad():
        for t in range(0, x.shape[1], chunk):
            logits, h, c = net(x[:, t: t + chunk], h, c)
            want = label[:, t: t + chunk]
            logits, want = logits[want >= 0], want[want >= 0]
            loss += functional.cross_entropy(logits, want, reduction="sum").item()
            predicted.append(logits.argmax(1))
            expected.append(want)
    predicted, expected = torch.cat(predicted).numpy(), torch.cat(expected).numpy()
    return loss / len(expected), predicted, expected


def train(net, args, x, label, validation):
    optimiser = torch.optim.Adam(net.parameters(), lr=args.rate)
    n_chunk = -(-x.shape[1] // args.chunk)
    n_group = -(-len(x) // args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.rate, total_steps=args.epochs * n_group * n_chunk)
    best, best_loss, history = None, float("inf"), []
    for epoch in range(args.epochs):
        order, seen, total = torch.randperm(len(x)), 0, 0.0
        for group in range(n_group):
            index = order[group * args.batch: (group + 1) * args.batch]
            h, c = net.zero_state(len(index))
            for chunk in range(n_chunk):
                net.train()
                at = slice(chunk * args.chunk, (chunk + 1) * args.chunk)
                want = label[index, at]
                logits, h, c = net(x[index, at], h.detach(), c.detach())
                if (want >= 0).any():
                    loss = functional.cross_entropy(logits.flatten(0, 1), want.flatten(), ignore_index=-1)
                    optimiser.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    optimiser.step()
                    total, seen = total + loss.item(), seen + 1
                schedule.step()
                done = (epoch * n_group + group) * n_chunk + chunk + 1
                progress(f"training: epoch {epoch + 1} of {args.epochs}, "
                         f"{100 * done / (args.epochs * n_group * n_chunk):.0f} %, loss {total / max(1, seen):.4f}")
        loss, predicted, expected = evaluate(net, *validation)
        history.append({"train_loss": total / max(1, seen), "validation_loss": loss,
                        "validation_accuracy": float((predicted == expected).mean())})
        progress(f"epoch {epoch + 1}: training loss {history[-1]['train_loss']:.4f}, validation loss {loss:.4f}, "
                 f"accuracy {history[-1]['validation_accuracy']:.4f}", final=True)
        if loss < best_loss:
            best_loss, best = loss, {k: v.clone() for k, v in net.state_dict().items()}
    net.load_state_dict(best)
    return history


def logistic_regression(data, x, parts, warmup):
    """The same features without memory: what the LSTM's state must beat. Returns test predictions."""
    rows = [np.sort(np.concatenate([r[c] for r, c in data.part(*part, warmup)])) for part in parts]
    model = nn.Linear(x.shape[1], len(CLASSES))
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100, line_search_fn="strong_wolfe")
    fit_x, fit_label = torch.from_numpy(x[rows[0]]), torch.from_numpy(data.label[rows[0]].astype(np.int64))

    def closure():
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(fit_x), fit_label)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        return model(torch.from_numpy(x[rows[1]])).argmax(1).numpy(), data.label[rows[1]], rows[1]


def export(net, path):
    net.eval()
    h, c = net.zero_state(1)
    warnings.filterwarnings("ignore")  # about batches above 1 and shapes it cannot infer: neither is used here
    torch.onnx.export(net, (torch.zeros(1, 1, net.lstm.input_size), h, c), path, input_names=["x", "h_in", "c_in"],
                      output_names=["logits", "h_out", "c_out"], dynamic_axes={"x": {1: "time"}}, opset_version=13)
    import onnx
    model = onnx.load(path)
    for node in model.graph.node:  # source positions: paths of this machine
        node.doc_string = ""
    onnx.save(model, path)


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # steps are small: more threads wait more than they work
    started = time.monotonic()
    data = Data(args.data)
    n = len(data.label)
    borders = [0, int(n * args.train), int(n * args.validate), n]
    parts = list(zip(borders[:-1], borders[1:]))

    fit = data.features[: borders[1]].astype(np.float64)
    mean, deviation = fit.mean(0).astype(np.float32), fit.std(0)
    scale = (1 / np.where(deviation > 1e-9, deviation, 1)).astype(np.float32)
    x = np.clip((data.features - mean) * scale, -X_ABS_MAX, X_ABS_MAX).astype(np.float32)

    net = Net(x.shape[1], args.hidden, args.layers, len(CLASSES))
    train_x, train_label = pieces(data, x, *parts[0], args.warmup, SEGMENT_TICKS)
    validation = pieces(data, x, *parts[1], args.warmup, None)
    test = pieces(data, x, *parts[2], args.warmup, None)
    history = train(net, args, train_x, train_label, validation)

    _, predicted, expected = evaluate(net, *test)
    logistic, logistic_expected, test_rows = logistic_regression(data, x, [parts[0], parts[2]], args.warmup)
    train_labels = data.label[: borders[1]]
    majority = int(np.bincount(train_labels[train_labels >= 0], minlength=3).argmax())
    accuracy = lambda got, want: float((got == want).mean())
    figures = {
        "rows": n,
        "parts": {"train": parts[0], "validation": parts[1], "test": parts[2]},
        "test_labels": len(expected),
        "test_accuracy": {
            "lstm": accuracy(predicted, expected),
            "logistic_regression": accuracy(logistic, logistic_expected),
            "persistence": accuracy(data.known[test_rows], logistic_expected),
            "majority_class": accuracy(majority, logistic_expected),
        },
        "test_recall": {name: accuracy(predicted[expected == k], k) for k, name in enumerate(CLASSES)},
        # Of the decisions that name a direction: how often the mid then went that way, and how often the other.
        "test_directional": {
            "decisions": int((predicted != 1).sum()),
            "right": accuracy(predicted[predicted != 1], expected[predicted != 1]),
            "opposite": accuracy(2 - predicted[predicted != 1], expected[predicted != 1]),
        },
        "history": history,
    }
    os.makedirs(args.out, exist_ok=True)
    export(net, os.path.join(args.out, "model.onnx"))
    provenance = json.loads(args.provenance)
    provenance["data_sha256"] = data.description["capture_sha256"]
    provenance["training"] = {k: v for k, v in vars(args).items() if k not in ("data", "out", "provenance")}
    provenance["test_accuracy"] = {k: round(v, 4) for k, v in figures["test_accuracy"].items()}
    norm = {
        "feature_schema": data.description["feature_schema"],
        "features": [{"name": name, "mean": float(m), "scale": float(s)}
                     for name, m, s in zip(data.description["names"], mean, scale)],
        "classes": CLASSES,
        "horizon_events": data.horizon,
        "warmup_ticks": args.warmup,
        "provenance": provenance,
    }
    for name, content in (("norm.json", norm), ("figures.json", figures)):
        with open(os.path.join(args.out, name), "w") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    print(f"test accuracy on {len(expected)} labels:", ", ".join(f"{k} {v:.4f}" for k, v in
                                                                  figures["test_accuracy"].items()))
    print(f"directional decisions: {figures['test_directional']}")
    print(f"trained in {time.monotonic() - started:.0f} s")


main()
