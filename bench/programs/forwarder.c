// Passes bytes between clients and one member on the loopback interface, without a look at them: the least CPU time of
// any balancer on sockets of TCP.
//
//     cc -O2 -o forwarder forwarder.c && ./forwarder PORT MEMBER_PORT
//
// Each client has its own connection to the member. One wait serves all sockets, and each event costs one receive and
// one send. A part that does not fit into a socket is lost, so the program is of no use beyond the measurement.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DESCRIPTORS 65536
#define EVENTS 512

static int peer_of[DESCRIPTORS];
static char buffer[65536];

static struct sockaddr_in loopback(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Waits for the bytes of `from`, which go to `to`.
static void pass(int poll, int from, int to) {
    int on = 1;
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = from};
    if (from >= DESCRIPTORS || epoll_ctl(poll, EPOLL_CTL_ADD, from, &event) < 0) {
        perror("forwarder: a connection");
        exit(1);
    }
    peer_of[from] = to;
}

static void accept_clients(int poll, int listener, const struct sockaddr_in *member) {
    int client;
    while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        int server = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(server, (const struct sockaddr *)member, sizeof *member) < 0) {
            perror("forwarder: the member");
            exit(1);
        }
        pass(poll, client, server);
        pass(poll, server, client);
    }
}

int main(int count, char **words) {
    if (count != 3) {
        fputs("usage: forwarder PORT MEMBER_PORT\n", stderr);
        return 1;
    }
    struct sockaddr_in own = loopback(words[1]), member = loopback(words[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, 4096) < 0) {
        perror("forwarder: the port");
        return 1;
    }
    int poll = epoll_create1(0);
    struct epoll_event events[EVENTS], accepting = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &accepting);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int at = 0; at < ready; at++) {
            int from = events[at].data.fd;
            if (from == listener) {
                accept_clients(poll, listener, &member);
                continue;
            }
            ssize_t bytes = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
            if (bytes > 0) {
                send(peer_of[from], buffer, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            } else if (bytes == 0) {
                shutdown(peer_of[from], SHUT_RDWR);
                close(from);
            }
        }
    }
}
