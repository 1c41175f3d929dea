// The raw limits: what sockets and memcpy can do on this machine, with the sizes and working set of the
// works.
//
// Owns a server (a thread a connection that blocks in recv: the fastest shape measured), client loops
// over 1..n connections, and a pump of small requests. A shared library with a C interface, so that a
// benchmark's process is the client in the same way as it is of the stores, and an owner's process can hold
// an echo thread beside its node. Knows nothing of any store. Errors are negative errnos.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kRequestBytes = 64;
constexpr int kBacklog = 128;

enum Operation : std::uint32_t { kEcho = 0, kGet = 1, kPut = 2 };

// 64 bytes on the wire, also as a put's answer and as an echo.
struct Request {
    std::uint32_t operation;
    std::uint32_t reserved;
    std::uint64_t offset;
    std::uint64_t bytes;
    char padding[kRequestBytes - 24];
};
static_assert(sizeof(Request) == kRequestBytes);

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

bool send_all(int fd, const char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t sent = ::send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        data += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
    return true;
}

bool receive_all(int fd, char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = ::recv(fd, data, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        data += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

void set_no_delay(int fd) {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket, harmlessly
}

// Serves one connection until its peer closes it.
void serve_connection(int fd, char* memory, std::size_t memory_bytes) {
    Request request;
    while (receive_all(fd, reinterpret_cast<char*>(&request), sizeof request)) {
        if (request.offset > memory_bytes || request.bytes > memory_bytes - request.offset) break;
        char* const range = memory + request.offset;
        if (request.operation == kGet) {
            if (!send_all(fd, range, request.bytes)) break;
            continue;
        }
        if (request.operation == kPut && !receive_all(fd, range, request.bytes)) break;
        if (!send_all(fd, reinterpret_cast<const char*>(&request), sizeof request)) break;
    }
    ::close(fd);
}

void accept_connections(int listener, char* memory, std::size_t memory_bytes) {
    while (true) {
        const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            return;
        }
        set_no_delay(fd);
        std::thread(serve_connection, fd, memory, memory_bytes).detach();
    }
}

// Several connections as one: a transfer is cut into as many equal parts.
class Connections {
  public:
    explicit Connections(std::vector<int> fds) : fds_(std::move(fds)) {
        for (std::size_t index = 1; index < fds_.size(); ++index) {
            workers_.emplace_back([this, index] { work(index); });
        }
    }

    Connections(const Connections&) = delete;
    Connections& operator=(const Connections&) = delete;

    ~Connections() {
        stopping_.store(true);
        turn_.fetch_add(1);
        turn_.notify_all();
        for (std::thread& worker : workers_) worker.join();
        for (const int fd : fds_) ::close(fd);
    }

    int first() const { return fds_.front(); }

    // One get or put of `bytes` at `data`, a thread a connection.
    bool transfer(Operation operation, char* data, std::uint64_t offset, std::size_t bytes) {
        operation_ = operation;
        data_ = data;
        offset_ = offset;
        bytes_ = bytes;
        left_.store(static_cast<int>(workers_.size()));
        turn_.fetch_add(1);
        turn_.notify_all();
        part(0);
        for (int left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
        return !failed_.load();
    }

    // One get over all connections by this thread alone, reading whichever has bytes.
    bool get_by_poll(char* data, std::uint64_t offset, std::size_t bytes) {
        std::vector<pollfd> polled(fds_.size());
        std::vector<std::pair<char*, std::size_t>> rest(fds_.size());
        std::size_t open = 0;
        for (std::size_t index = 0; index < fds_.size(); ++index) {
            const auto [begin, size] = range(index, bytes);
            polled[index] = {fds_[index], POLLIN, 0};
            rest[index] = {data + begin, size};
            if (!ask(fds_[index], kGet, offset + begin, size)) return false;
            if (size > 0) ++open;
        }
        while (open > 0) {
            if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return false;
            for (std::size_t index = 0; index < fds_.size(); ++index) {
                auto& [next, size] = rest[index];
                if (polled[index].revents == 0 || size == 0) continue;
                const ssize_t got = ::recv(fds_[index], next, size, MSG_DONTWAIT);
                if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
                if (got < 0) continue;
                next += got;
                size -= static_cast<std::size_t>(got);
                if (size == 0) {
                    polled[index].fd = -1;
                    --open;
                }
            }
        }
        return true;
    }

    static bool ask(int fd, Operation operation, std::uint64_t offset, std::size_t bytes) {
        Request request{};
        request.operation = operation;
        request.offset = offset;
        request.bytes = bytes;
        return send_all(fd, reinterpret_cast<const char*>(&request), sizeof request);
    }

  private:
    std::pair<std::size_t, std::size_t> range(std::size_t index, std::size_t bytes) const {
        const std::size_t begin = bytes * index / fds_.size();
        return {begin, bytes * (index + 1) / fds_.size() - begin};
    }

    void part(std::size_t index) {
        const auto [begin, size] = range(index, bytes_);
        const int fd = fds_[index];
        bool ok = ask(fd, operation_, offset_ + begin, size);
        if (operation_ == kGet) {
            ok = ok && receive_all(fd, data_ + begin, size);
        } else {
            Request answer;
            ok = ok && send_all(fd, data_ + begin, size) &&
                 receive_all(fd, reinterpret_cast<char*>(&answer), sizeof answer);
        }
        if (!ok) failed_.store(true);
    }

    void work(std::size_t index) {
        std::uint32_t seen = 0;
        while (true) {
            turn_.wait(seen);
            seen = turn_.load();
            if (stopping_.load()) return;
            part(index);
            if (left_.fetch_sub(1) == 1) left_.notify_all();
        }
    }

    std::vector<int> fds_;
    std::vector<std::thread> workers_;
    std::atomic<std::uint32_t> turn_{0};
    std::atomic<int> left_{0};
    std::atomic<bool> failed_{false};
    std::atomic<bool> stopping_{false};
    Operation operation_ = kEcho;
    char* data_ = nullptr;
    std::uint64_t offset_ = 0;
    std::size_t bytes_ = 0;
};

sockaddr_un unix_address(const char* path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

sockaddr_in loopback_address(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int listen_and_serve(int fd, const sockaddr* address, socklen_t address_bytes, std::size_t memory_bytes) {
    if (fd < 0 || ::bind(fd, address, address_bytes) != 0 || ::listen(fd, kBacklog) != 0) return -errno;
    // Lives as long as the process: connections' threads read it until the end.
    char* const memory = std::make_unique<char[]>(memory_bytes).release();
    std::memset(memory, 1, memory_bytes);
    std::thread(accept_connections, fd, memory, memory_bytes).detach();
    return 0;
}

}  // namespace

extern "C" {

// Serves `memory_bytes` on a free port of the loopback interface, for the rest of the process. The port.
int raw_serve(std::size_t memory_bytes) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback_address(0);
    const int failed =
        listen_and_serve(fd, reinterpret_cast<sockaddr*>(&address), sizeof address, memory_bytes);
    if (failed != 0) return failed;
    socklen_t address_bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_bytes) != 0) return -errno;
    return ntohs(address.sin_port);
}

// The same at a Unix socket. 0.
int raw_serve_unix(const char* path, std::size_t memory_bytes) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = unix_address(path);
    return listen_and_serve(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address, memory_bytes);
}

// Connections to a port, or to a Unix socket where `path` is not empty; null when one fails.
void* raw_connect(int port, const char* path, int count) {
    std::vector<int> fds;
    for (int index = 0; index < count; ++index) {
        const bool is_unix = path[0] != '\0';
        const int fd = ::socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_un unix_peer = unix_address(path);
        const sockaddr_in peer = loopback_address(port);
        const int failed =
            is_unix ? ::connect(fd, reinterpret_cast<const sockaddr*>(&unix_peer), sizeof unix_peer)
                    : ::connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
        if (failed != 0) {
            ::close(fd);
            for (const int open : fds) ::close(open);
            return nullptr;
        }
        set_no_delay(fd);
        fds.push_back(fd);
    }
    return std::make_unique<Connections>(std::move(fds)).release();
}

void raw_close(void* connections) { std::unique_ptr<Connections>(static_cast<Connections*>(connections)); }

// `count` round trips of 64 bytes out and `answer_bytes` back (64, or a get of the server's memory) into
// `answer`; the time of each in ns.
int raw_round_trips(void* connections, char* answer, std::size_t answer_bytes, int count,
                    std::int64_t* out_ns) {
    const int fd = static_cast<Connections*>(connections)->first();
    for (int index = 0; index < count; ++index) {
        const std::int64_t begin = now_ns();
        const Operation operation = answer_bytes == kRequestBytes ? kEcho : kGet;
        if (!Connections::ask(fd, operation, 0, operation == kEcho ? 0 : answer_bytes) ||
            !receive_all(fd, answer, answer_bytes)) {
            return -EPIPE;
        }
        out_ns[index] = now_ns() - begin;
    }
    return 0;
}

// `count` gets or puts of `bytes`, over `slots` places of `memory` and of the server's memory in turn.
int raw_transfers(void* connections, int operation, int by_poll, char* memory, int slots, std::size_t bytes,
                  int count, std::int64_t* out_ns) {
    auto* const all = static_cast<Connections*>(connections);
    for (int index = 0; index < count; ++index) {
        const std::size_t offset = static_cast<std::size_t>(index % slots) * bytes;
        const std::int64_t begin = now_ns();
        const bool ok =
            by_poll != 0 ? all->get_by_poll(memory + offset, offset, bytes)
                         : all->transfer(static_cast<Operation>(operation), memory + offset, offset, bytes);
        if (!ok) return -EPIPE;
        out_ns[index] = now_ns() - begin;
    }
    return 0;
}

// `count` copies of `bytes`, over `slots` places in turn.
void raw_copies(char* target, const char* source, int slots, std::size_t bytes, int count,
                std::int64_t* out_ns) {
    for (int index = 0; index < count; ++index) {
        const std::size_t offset = static_cast<std::size_t>(index % slots) * bytes;
        const std::int64_t begin = now_ns();
        std::memcpy(target + offset, source + offset, bytes);
        out_ns[index] = now_ns() - begin;
    }
}

// Keeps `depth` requests under way on each connected socket until `duration_ms` have passed and all are
// answered. Every answer has `answer_bytes`. The number of answers.
std::int64_t raw_pump(const int* fds, int fd_count, const char* request, std::size_t request_bytes,
                      std::size_t answer_bytes, int depth, std::int64_t duration_ms) {
    std::string burst;
    for (int index = 0; index < depth; ++index) burst.append(request, request_bytes);
    std::vector<pollfd> polled;
    std::vector<std::size_t> missing(static_cast<std::size_t>(fd_count),
                                     answer_bytes * static_cast<std::size_t>(depth));
    for (int index = 0; index < fd_count; ++index) {
        polled.push_back({fds[index], POLLIN, 0});
        if (!send_all(fds[index], burst.data(), burst.size())) return -EPIPE;
    }
    const std::int64_t end = now_ns() + duration_ms * 1'000'000;
    std::int64_t answered = 0;
    std::vector<char> answer(64 << 10);
    for (int open = fd_count; open > 0;) {
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return -errno;
        for (std::size_t index = 0; index < polled.size(); ++index) {
            if (polled[index].fd < 0 || polled[index].revents == 0) continue;
            const ssize_t got = ::recv(polled[index].fd, answer.data(),
                                       std::min(answer.size(), missing[index]), MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (got <= 0) return -EPIPE;
            // Whole answers before and after: one that is complete is asked for again at once.
            const std::size_t before = (missing[index] + answer_bytes - 1) / answer_bytes;
            missing[index] -= static_cast<std::size_t>(got);
            const std::size_t after = (missing[index] + answer_bytes - 1) / answer_bytes;
            const std::size_t complete = before - after;
            answered += static_cast<std::int64_t>(complete);
            if (now_ns() < end) {
                if (!send_all(polled[index].fd, burst.data(), complete * request_bytes)) return -EPIPE;
                missing[index] += complete * answer_bytes;
            } else if (missing[index] == 0) {
                polled[index].fd = -1;
                --open;
            }
        }
    }
    return answered;
}
}
