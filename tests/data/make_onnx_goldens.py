#!/usr/bin/python3
"""Writes tests/data/onnx: small ONNX files, and goldens.json with what is expected of each.

accepted: features of every step and the logits that PyTorch (FP32) computes from them, state carried on.
refused: words that the message must contain.

Made with Debian 12's python3-torch 1.13 and python3-onnx 1.12; run from anywhere:
    tests/data/make_onnx_goldens.py
The same packages give the same files, byte for byte.
"""
import json
import os
import warnings

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

warnings.filterwarnings("ignore")
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx")
N_STEP = 12


class Net(nn.Module):
    """nn.LSTM and nn.Linear, put together in the ways people do."""

    def __init__(self, n_in, n_hidden, n_layer, n_class, batch_first, head, states=False, softmax=None, bias=True,
                 lstm_bias=True):
        super().__init__()
        self.lstm = nn.LSTM(n_in, n_hidden, n_layer, batch_first=batch_first, bias=lstm_bias)
        self.head = nn.Linear(n_hidden, n_class, bias=bias)
        self.batch_first, self.how, self.states, self.softmax = batch_first, head, states, softmax
        with torch.no_grad():  # PyTorch's start is timid; larger weights show swapped gates more clearly
            for p in self.parameters():
                p.copy_(torch.randn_like(p) * 0.7)

    def forward(self, x, *state):
        y, (h, c) = self.lstm(x, state if self.states else None)
        y = {
            "every": lambda: y,
            "last": lambda: y[:, -1] if self.batch_first else y[-1],
            "slice": lambda: y[:, -1:, :] if self.batch_first else y[-1:],
            "h_n": lambda: h[-1],
            "flat": lambda: y.reshape(-1, y.shape[-1]),
        }[self.how]()
        out = self.head(y)
        if self.softmax:
            out = self.softmax(out)
        return (out, h, c) if self.states else out


def export(name, net, rank=3, n_step=N_STEP, **options):
    net.eval()
    n_in, n_hidden, n_layer = net.lstm.input_size, net.lstm.hidden_size, net.lstm.num_layers
    shape = (n_step, n_in) if rank == 2 else (1, n_step, n_in) if net.batch_first else (n_step, 1, n_in)
    args = (torch.zeros(shape),)
    if net.states:
        args += (torch.zeros(n_layer, 1, n_hidden), torch.zeros(n_layer, 1, n_hidden))
    path = os.path.join(OUT, name + ".onnx")
    torch.onnx.export(net, args, path, **options)
    # Source positions are of no use here and hold this machine's paths.
    model = onnx.load(path)
    for node in model.graph.node:
        node.doc_string = ""
    onnx.save(model, path)


def stored_transposed(graph):
    """The head's weight stored as nn.Linear has it, and a Transpose in front of the MatMul."""
    matmul = next(n for n in graph.node if n.op_type == "MatMul")
    weight = next(t for t in graph.initializer if t.name == matmul.input[1])
    constant(graph, weight.name, np.ascontiguousarray(numpy_helper.to_array(weight).T))
    transpose = helper.make_node("Transpose", [weight.name], ["transposed"], "transpose", perm=[1, 0])
    insert(graph, list(graph.node).index(matmul), transpose)
    next(n for n in graph.node if n.op_type == "MatMul").input[1] = "transposed"


def accepted(name, net, change=None, **options):
    export(name, net, **options)
    if change:
        path = os.path.join(OUT, name + ".onnx")
        model = onnx.load(path)
        change(model.graph)
        onnx.save(model, path)
    with torch.no_grad():
        x = torch.randn(1, N_STEP, net.lstm.input_size) * 1.5
        y, _ = net.lstm(x if net.batch_first else x.transpose(0, 1))
        logits = net.head(y).reshape(N_STEP, -1)
    return {
        "file": name + ".onnx",
        "hidden": [net.lstm.hidden_size] * net.lstm.num_layers,
        "x": x[0].tolist(),
        "logits": logits.tolist(),
    }


def make_accepted():
    dynamic = dict(input_names=["x"], dynamic_axes={"x": {0: "batch", 1: "time"}})
    softmax, log_softmax = nn.Softmax(-1), nn.LogSoftmax(-1)
    return [
        accepted("one_layer_every", Net(5, 7, 1, 3, True, "every")),
        accepted("one_layer_last", Net(5, 7, 1, 3, True, "last")),
        accepted("time_first_every", Net(4, 6, 1, 3, False, "every")),
        accepted("time_first_last", Net(4, 6, 1, 3, False, "last")),
        accepted("two_layers_last", Net(3, 5, 2, 3, True, "last"), **dynamic),
        accepted("two_layers_h_n", Net(3, 5, 2, 3, False, "h_n")),
        accepted("three_layers_every", Net(6, 4, 3, 2, True, "every"), **dynamic),
        accepted("three_layers_h_n", Net(6, 4, 3, 8, True, "h_n")),
        accepted("states_one_layer", Net(4, 5, 1, 3, True, "every", states=True), n_step=1),
        accepted("states_two_layers", Net(4, 5, 2, 3, True, "last", states=True)),
        accepted("states_three_layers", Net(2, 3, 3, 3, False, "every", states=True)),
        accepted("slice_last", Net(4, 5, 1, 3, True, "slice")),
        accepted("flattened", Net(4, 5, 1, 3, True, "flat")),
        accepted("unbatched", Net(4, 5, 1, 3, False, "every"), rank=2),
        accepted("softmax", Net(4, 5, 1, 3, True, "last", softmax=softmax)),
        accepted("log_softmax_every", Net(4, 5, 1, 3, True, "every", softmax=log_softmax)),
        accepted("no_biases", Net(4, 5, 1, 3, True, "every", bias=False, lstm_bias=False)),
        accepted("no_bias_gemm", Net(4, 5, 1, 3, True, "last", bias=False)),
        accepted("one_input_one_unit", Net(1, 1, 1, 2, True, "every")),
        accepted("opset_9", Net(4, 5, 2, 3, True, "last"), opset_version=9),
        accepted("opset_11_softmax", Net(4, 5, 1, 3, True, "last", softmax=softmax), opset_version=11),
        accepted("opset_16", Net(4, 5, 1, 3, True, "every"), opset_version=16, **dynamic),
        accepted("keep_initializers", Net(4, 5, 1, 3, True, "every"), keep_initializers_as_inputs=True),
        accepted("transposed_head", Net(4, 5, 1, 3, True, "every"), change=stored_transposed),
    ]


def base():
    """[time, batch, 4] -> LSTM of 3 -> [batch, 2] by hand: X, LSTM, Squeeze, Gather, Gemm."""
    rng = np.random.default_rng(1)
    tensor = lambda name, *shape: numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
    constants = [
        tensor("W", 1, 12, 4), tensor("R", 1, 12, 3), tensor("B", 1, 24), tensor("A", 2, 3), tensor("a", 2),
        numpy_helper.from_array(np.array([1]), "one"), numpy_helper.from_array(np.array(-1), "last"),
    ]
    nodes = [
        helper.make_node("LSTM", ["X", "W", "R", "B"], ["Y", "Yh", "Yc"], "lstm", hidden_size=3),
        helper.make_node("Squeeze", ["Y", "one"], ["Z"], "squeeze"),
        helper.make_node("Gather", ["Z", "last"], ["H"], "gather", axis=0),
        helper.make_node("Gemm", ["H", "A", "a"], ["logits"], "head", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "base", [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["time", 1, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 2])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="goldens")


REFUSED = []


def refused(*words):
    """Each function changes the base network; its name is the file's."""

    def add(change):
        model = base()
        model = change(model, model.graph, {n.name: n for n in model.graph.node}) or model
        name = change.__name__ + ".onnx"
        onnx.save(model, os.path.join(OUT, name))
        REFUSED.append({"file": name, "contains": list(words)})

    return add


def attribute(node, name, value):
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    node.attribute.append(helper.make_attribute(name, value))


def constant(graph, name, array):
    for old in [t for t in graph.initializer if t.name == name]:
        graph.initializer.remove(old)
    graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))


def insert(graph, at, node):
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes[:at] + [node] + nodes[at:])


def make_refused():
    @refused("'lstm'", "LSTM", "forward")
    def refused_bidirectional(model, graph, node):
        attribute(node["lstm"], "direction", "bidirectional")

    @refused("'lstm'", "forward")
    def refused_reverse(model, graph, node):
        attribute(node["lstm"], "direction", "reverse")

    @refused("'lstm'", "peephole")
    def refused_peephole(model, graph, node):
        constant(graph, "P", np.zeros((1, 9), np.float32))
        node["lstm"].input.extend(["", "", "", "P"])

    @refused("'lstm'", "clip")
    def refused_clip(model, graph, node):
        attribute(node["lstm"], "clip", 3.0)

    @refused("'lstm'", "activations")
    def refused_activations(model, graph, node):
        attribute(node["lstm"], "activations", ["HardSigmoid", "Tanh", "Tanh"])

    @refused("'lstm'", "activation_alpha")
    def refused_activation_alpha(model, graph, node):
        attribute(node["lstm"], "activation_alpha", [0.3])

    @refused("'lstm'", "input_forget")
    def refused_input_forget(model, graph, node):
        attribute(node["lstm"], "input_forget", 1)

    @refused("'lstm'", "layout")
    def refused_layout(model, graph, node):
        attribute(node["lstm"], "layout", 1)

    @refused("'lstm'", "sequence_lens")
    def refused_sequence_lens(model, graph, node):
        constant(graph, "lens", np.array([4], np.int32))
        node["lstm"].input.append("lens")

    @refused("'lstm'", "projection")
    def refused_projection(model, graph, node):
        constant(graph, "R", np.zeros((1, 12, 2), np.float32))

    @refused("'lstm'", "initial_h")
    def refused_initial_state(model, graph, node):
        constant(graph, "h0", np.full((1, 1, 3), 0.5, np.float32))
        constant(graph, "c0", np.zeros((1, 1, 3), np.float32))
        node["lstm"].input.extend(["", "h0", "c0"])

    @refused("'lstm'", "W", "FP32")
    def refused_fp16(model, graph, node):
        constant(graph, "W", np.zeros((1, 12, 4), np.float16))

    @refused("'lstm'", "another file")
    def refused_external_data(model, graph, node):
        w = graph.initializer[0]
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value="weights.bin")

    @refused("'lstm'", "number of values")
    def refused_short_tensor(model, graph, node):
        graph.initializer[0].raw_data = graph.initializer[0].raw_data[:-4]

    @refused("'lstm'", "hidden_size")
    def refused_too_wide(model, graph, node):
        attribute(node["lstm"], "hidden_size", 257)

    @refused("'lstm'", "257 inputs")
    def refused_too_many_inputs(model, graph, node):
        constant(graph, "W", np.zeros((1, 12, 257), np.float32))

    @refused("GRU", "not supported")
    def refused_gru(model, graph, node):
        node["lstm"].op_type = "GRU"

    @refused("Relu", "'relu'", "not supported")
    def refused_relu(model, graph, node):
        node["head"].input[0] = "H2"
        insert(graph, 3, helper.make_node("Relu", ["H"], ["H2"], "relu"))

    @refused("DynamicQuantizeLSTM", "com.microsoft")
    def refused_foreign_domain(model, graph, node):
        node["lstm"].op_type = "DynamicQuantizeLSTM"
        node["lstm"].domain = "com.microsoft"

    @refused("QuantizeLinear", "not supported")
    def refused_quantised(model, graph, node):
        constant(graph, "scale", np.array(0.1, np.float32))
        node["lstm"].input[0] = "Q"
        insert(graph, 0, helper.make_node("QuantizeLinear", ["X", "scale"], ["Q"], "quantise"))

    @refused("'head2'", "second linear layer")
    def refused_two_heads(model, graph, node):
        constant(graph, "A2", np.eye(2, dtype=np.float32))
        graph.output[0].name = "logits2"
        graph.node.append(helper.make_node("Gemm", ["logits", "A2"], ["logits2"], "head2"))

    @refused("'before'", "before the LSTM")
    def refused_linear_before(model, graph, node):
        constant(graph, "A0", np.eye(4, dtype=np.float32))
        node["lstm"].input[0] = "X2"
        insert(graph, 0, helper.make_node("MatMul", ["X", "A0"], ["X2"], "before"))

    @refused("'gather'", "last time step")
    def refused_first_step(model, graph, node):
        constant(graph, "last", np.array(0))

    @refused("'gather'", "axis 1")
    def refused_batch_picked(model, graph, node):
        attribute(node["gather"], "axis", 1)

    @refused("'cut'", "axis 2")
    def refused_feature_cut(model, graph, node):
        constant(graph, "from", np.array([1]))
        constant(graph, "to", np.array([3]))
        constant(graph, "axis", np.array([2]))
        node["lstm"].input[0] = "X2"
        insert(graph, 0, helper.make_node("Slice", ["X", "from", "to", "axis"], ["X2"], "cut"))

    @refused("'skip'", "residual")
    def refused_residual(model, graph, node):
        node["head"].input[0] = "H2"
        insert(graph, 3, helper.make_node("Add", ["H", "H"], ["H2"], "skip"))

    @refused("'head'", "alpha")
    def refused_gemm_alpha(model, graph, node):
        attribute(node["head"], "alpha", 0.5)

    @refused("'head'", "'TBF'", "Gemm")
    def refused_gemm_three_axes(model, graph, node):
        node["head"].input[0] = "Z"

    @refused("'head'", "9 classes")
    def refused_nine_classes(model, graph, node):
        constant(graph, "A", np.zeros((9, 3), np.float32))
        constant(graph, "a", np.zeros(9, np.float32))

    @refused("'head'", "1 classes")
    def refused_one_class(model, graph, node):
        constant(graph, "A", np.zeros((1, 3), np.float32))
        constant(graph, "a", np.zeros(1, np.float32))

    @refused("'lstm2'", "chain")
    def refused_parallel_lstms(model, graph, node):
        insert(graph, 1, helper.make_node("LSTM", ["X", "W", "R", "B"], ["Y2", "", ""], "lstm2", hidden_size=3))

    @refused("'lstm2'", "initial_c")
    def refused_encoder_decoder(model, graph, node):
        for name, shape in (("W2", (1, 12, 3)), ("h0", (1, 1, 3))):
            constant(graph, name, np.zeros(shape, np.float32))
        node["gather"].input[0] = "Z2"
        insert(graph, 2, helper.make_node("LSTM", ["Z", "W2", "R", "B", "", "h0", "Yc"], ["Y2"], "lstm2", hidden_size=3))
        insert(graph, 3, helper.make_node("Squeeze", ["Y2", "one"], ["Z2"], "squeeze2"))

    @refused("'softmax'", "over the classes")
    def refused_softmax_over_batch(model, graph, node):
        graph.output[0].name = "p"
        graph.node.append(helper.make_node("Softmax", ["logits"], ["p"], "softmax", axis=0))

    @refused("no LSTM")
    def refused_no_lstm(model, graph, node):
        del graph.node[:]
        graph.output[0].name = "X"

    @refused("exactly one")
    def refused_no_head(model, graph, node):
        del graph.node[3]
        graph.output[0].name = "H"

    @refused("opset 8")
    def refused_old_opset(model, graph, node):
        model.opset_import[0].version = 8

    @refused("not defined")
    def refused_dangling_input(model, graph, node):
        node["head"].input[0] = "nothing"

    @refused("defined twice")
    def refused_twice_defined(model, graph, node):
        node["squeeze"].output[0] = "Y"

    @refused("features", "first")
    def refused_states_first(model, graph, node):
        graph.input.insert(0, helper.make_tensor_value_info("h0", TensorProto.INT64, [1, 1, 3]))

    @refused("do_constant_folding")
    def refused_unfolded(model, graph, node):
        torch.manual_seed(1)
        export("refused_unfolded", Net(3, 2, 1, 2, True, "every"), do_constant_folding=False)
        return onnx.load(os.path.join(OUT, "refused_unfolded.onnx"))

    @refused("direction is not 'forward'")
    def refused_torch_bidirectional(model, graph, node):
        class Bidirectional(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(3, 2, batch_first=True, bidirectional=True), nn.Linear(4, 2)

            def forward(self, x):
                return self.head(self.lstm(x)[0])

        torch.manual_seed(1)
        path = os.path.join(OUT, "refused_torch_bidirectional.onnx")
        torch.onnx.export(Bidirectional(), torch.zeros(1, 4, 3), path)
        model = onnx.load(path)
        for n in model.graph.node:
            n.doc_string = ""
        return model


def main():
    os.makedirs(OUT, exist_ok=True)
    torch.manual_seed(20)
    torch.set_num_threads(1)
    goldens = {"accepted": make_accepted()}
    make_refused()
    goldens["refused"] = REFUSED
    with open(os.path.join(OUT, "goldens.json"), "w") as f:
        json.dump(goldens, f, separators=(",", ":"))
        f.write("\n")


main()
