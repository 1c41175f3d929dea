#include <sys/epoll.h>
#include <sys/socket.h>

#include <netinet/in.h>
#include <poll.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include "net/address.h"
#include "net/connection.h"
#include "net/dial.h"
#include "net/local_socket.h"
#include "net/socket_connection.h"

namespace mooncake::net {

namespace {

constexpr int kAcceptsATurn = 64;
// Out of descriptors or memory: accepting again at once would fail again, and level-triggered epoll would
// spin.
constexpr std::uint64_t kAcceptBackoffMs = 100;

[[noreturn]] void raise(int error, const Server::Options& options) {
    throw std::system_error(error, std::generic_category(),
                            "cannot listen on " + to_text({options.host, options.port}));
}

FileDescriptor try_listen(const Address& address, int backlog) {
    FileDescriptor fd = new_socket(address.storage.ss_family);
    if (!fd) return fd;
    const int one = 1;
    const int zero = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address.storage.ss_family == AF_INET6) {
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), backlog) != 0) {
        const int error = errno;
        fd.reset();
        errno = error;
    }
    return fd;
}

FileDescriptor listen_on(const Server::Options& options) {
    if (!options.local_name.empty()) return listen_local(options.local_name, options.backlog);
    const std::string host = options.host.empty() ? "0.0.0.0" : options.host;
    const auto resolution = Resolution::start({host, options.port});
    constexpr std::uint64_t kResolveMs = 5'000;
    if (!resolution->ready()) wait_for(resolution->fd(), POLLIN, monotonic_ms() + kResolveMs);
    std::string why = "the name was not resolved in time";
    const std::vector<Address> addresses =
        resolution->ready() ? resolution->take(why) : std::vector<Address>{};
    if (addresses.empty()) {
        throw std::system_error(EADDRNOTAVAIL, std::generic_category(), "cannot listen on " + why);
    }
    FileDescriptor fd;
    for (const Address& address : addresses) {
        fd = try_listen(address, options.backlog);
        if (fd) return fd;
    }
    raise(errno, options);
}

}  // namespace

struct Server::State : FdHandler, std::enable_shared_from_this<Server::State> {
    State(LoopThreads& threads, Options given, HandlerFactory make_handler)
        : loops(threads),
          options(std::move(given)),
          factory(std::move(make_handler)),
          accept_loop(threads.next()),
          listener(listen_on(options)),
          port(local_address(listener.get()).port()) {}

    LoopThreads& loops;
    const Options options;
    const HandlerFactory factory;
    EventLoop& accept_loop;
    FileDescriptor listener;
    const std::uint16_t port;

    std::atomic<std::size_t> count = 0;  // accepted and not yet ended
    std::atomic<bool> stopping = false;

    std::mutex mutex;  // guards the two below
    std::condition_variable changed;
    bool listening = true;
    std::unordered_map<std::uint64_t, std::weak_ptr<Connection>> connections;

    void on_events(std::uint32_t events) override;
    void on_loop_end() override { stop_listening(); }
    void start();
    void stop_listening();
    void hand_over(FileDescriptor socket);
    void adopt(EventLoop& loop, FileDescriptor socket);
    void gone(std::uint64_t id);
};

void Server::State::start() {
    const bool posted = accept_loop.try_post([self = shared_from_this()] {
        if (self->listener) self->accept_loop.watch(self->listener.get(), EPOLLIN, *self);
    });
    if (!posted) throw std::system_error(ECANCELED, std::generic_category(), "the event loops have stopped");
}

void Server::State::on_events(std::uint32_t) {
    for (int i = 0; i < kAcceptsATurn; ++i) {
        FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            // Dropping it here closes it: the peer sees the end, and we keep our promises to the others.
            if (count < options.connections_max && !stopping) hand_over(std::move(socket));
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            accept_loop.change(listener.get(), 0, *this);
            accept_loop.call_after(kAcceptBackoffMs, [self = shared_from_this()] {
                if (self->listener) self->accept_loop.change(self->listener.get(), EPOLLIN, *self);
            });
            return;
        }
        // Anything else (ECONNABORTED, EPROTO, ...) concerns that one peer.
    }
}

void Server::State::hand_over(FileDescriptor socket) {
    set_stream_options(socket.get());
    ++count;
    EventLoop& loop = loops.next();
    if (&loop == &accept_loop) return adopt(loop, std::move(socket));
    const auto shared = std::make_shared<FileDescriptor>(std::move(socket));
    const bool posted =
        loop.try_post([self = shared_from_this(), &loop, shared] { self->adopt(loop, std::move(*shared)); });
    if (!posted) gone(0);
}

void Server::State::adopt(EventLoop& loop, FileDescriptor socket) {
    std::unique_ptr<ConnectionHandler> handler;
    if (!stopping) handler = factory();
    if (handler == nullptr) return gone(0);
    auto connection = std::make_shared<SocketConnection>(
        loop, std::move(socket), options.limits, wire::kHelloBytesMax, std::move(handler),
        [self = shared_from_this()](std::uint64_t id) { self->gone(id); });
    {
        const std::lock_guard lock(mutex);
        connections.emplace(connection->id(), connection);
    }
    connection->start();
    // stop() may have looked at `connections` just before this one was among them.
    if (stopping) connection->close("the server is stopping", false);
}

void Server::State::gone(std::uint64_t id) {
    const std::lock_guard lock(mutex);
    connections.erase(id);
    --count;
    changed.notify_all();
}

void Server::State::stop_listening() {
    if (listener) {
        accept_loop.unwatch(listener.get());
        listener.reset();
    }
    const std::lock_guard lock(mutex);
    listening = false;
    changed.notify_all();
}

Server::Server(LoopThreads& loops, Options options, HandlerFactory factory)
    : state_(std::make_shared<State>(loops, std::move(options), std::move(factory))) {
    state_->start();
}

Server::~Server() { stop(); }

void Server::stop() {
    for (std::size_t i = 0; i < state_->loops.count(); ++i) assert(!state_->loops.at(i).in_loop());
    state_->stopping = true;
    // When the loop has ended, it told us so (on_loop_end) and the listener is closed already.
    state_->accept_loop.post([state = state_] { state->stop_listening(); });
    std::vector<std::shared_ptr<Connection>> open;
    {
        std::unique_lock lock(state_->mutex);
        state_->changed.wait(lock, [&] { return !state_->listening; });
        for (const auto& [id, connection] : state_->connections) {
            if (auto alive = connection.lock()) open.push_back(std::move(alive));
        }
    }
    for (const auto& connection : open) connection->close("the server is stopping");
    open.clear();
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->count == 0; });
}

std::uint16_t Server::port() const { return state_->port; }
std::size_t Server::connection_count() const { return state_->count; }

}  // namespace mooncake::net
