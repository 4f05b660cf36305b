/* The server: one poll() over the socket, up to CONTROL_N_CLIENT clients and the end's eventfd. A client
 * sends one line and gets one back; it is served whole as soon as its line is there, one after the other. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control_self.h"

static void drop(struct control_client *client)
{
    close(client->fd);
    client->fd = -1;
}

/* An answer is well below a socket's buffer, and the first thing in it: it goes at once, or the client is
 * gone. */
static void send_answer(struct control_client *client, const char *answer)
{
    char line[CONTROL_ANSWER_BYTES + 1];
    const size_t n = strlen(answer);
    memcpy(line, answer, n);
    line[n] = '\n';
    (void)!send(client->fd, line, n + 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* the client will notice */
    drop(client);
}

static void refuse(struct control_client *client, const char *why)
{
    char answer[CONTROL_ANSWER_BYTES];
    control_refuse(why, answer);
    send_answer(client, answer);
}

/* There is something to be read. */
static void take(struct control *control, struct control_client *client)
{
    char answer[CONTROL_ANSWER_BYTES];
    const size_t room = sizeof(client->request) - client->size_bytes;
    const ssize_t n = recv(client->fd, client->request + client->size_bytes, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* gone, perhaps in the middle of its line: which then is none */
        drop(client);
        return;
    }
    client->size_bytes += (size_t)n;
    const char *end = memchr(client->request, '\n', client->size_bytes);
    if (!end && client->size_bytes == sizeof(client->request)) {
        refuse(client, "the request is longer than 1023 bytes and its newline");
        return;
    }
    if (!end)
        return;
    if (end + 1 != client->request + client->size_bytes) {
        refuse(client, "the request is more than one line");
        return;
    }
    control_answer(control, client->request, client->size_bytes - 1, client->uid, answer);
    send_answer(client, answer);
}

/* now_ms: read before the last poll(), so that what came in time has been taken by then. */
static int64_t waited_ms(const struct control_client *client, uint64_t now_ms)
{
    return (int64_t)(now_ms - client->since_ms);
}

/* A place for one more: a free one, or that of a client that has been silent while others wait. NULL: none
 * yet. */
static struct control_client *place(struct control *control, uint64_t now_ms)
{
    struct control_client *oldest = &control->client[0];
    for (int i = 0; i < CONTROL_N_CLIENT; i++) {
        struct control_client *client = &control->client[i];
        if (client->fd < 0)
            return client;
        if (client->since_ms < oldest->since_ms)
            oldest = client;
    }
    return waited_ms(oldest, now_ms) >= CONTROL_CROWD_MS ? oldest : NULL;
}

static void welcome(struct control *control, struct control_client *client)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    const int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* gone again; or no descriptor is left, which must not make this thread spin */
        nanosleep(&(struct timespec){.tv_nsec = CONTROL_TICK_MS * 1000000}, NULL);
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
        close(fd);
        return;
    }
    if (client->fd >= 0)
        refuse(client, "no line in time, and others wait");
    client->fd = fd;
    client->uid = peer.uid;
    client->since_ms = control_now_ms();
    client->size_bytes = 0;
}

void *control_serve(void *argument)
{
    struct control *control = argument;
    for (;;) {
        struct pollfd fds[2 + CONTROL_N_CLIENT] = {{.fd = control->stop_fd, .events = POLLIN},
                                                   {.fd = control->listen_fd, .events = POLLIN}};
        const uint64_t now_ms = control_now_ms();
        if (!place(control, now_ms))
            fds[1].fd = -1;
        for (int i = 0; i < CONTROL_N_CLIENT; i++)
            fds[2 + i] = (struct pollfd){.fd = control->client[i].fd, .events = POLLIN};
        if (poll(fds, 2 + CONTROL_N_CLIENT, CONTROL_TICK_MS) < 0)
            for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                fds[i].revents = 0; /* out of memory: try again */
        control_pay(control);
        if (fds[0].revents)
            break;
        for (int i = 0; i < CONTROL_N_CLIENT; i++)
            if (control->client[i].fd >= 0 && fds[2 + i].revents)
                take(control, &control->client[i]);
        struct control_client *client = fds[1].revents ? place(control, now_ms) : NULL;
        if (client)
            welcome(control, client);
        for (int i = 0; i < CONTROL_N_CLIENT; i++)
            if (control->client[i].fd >= 0 && waited_ms(&control->client[i], now_ms) >= CONTROL_CLIENT_MS)
                refuse(&control->client[i], "no whole line within a second");
    }
    for (int i = 0; i < CONTROL_N_CLIENT; i++)
        if (control->client[i].fd >= 0)
            drop(&control->client[i]);
    return NULL;
}
