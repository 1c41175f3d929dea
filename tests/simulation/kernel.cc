#include "kernel.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace simulation {

namespace {

Kernel* g_kernel = nullptr;

// How long an end of a broken connection may not hear of it.
constexpr Ms kNoticeMaxMs = 400;
// A segment of the network; longer sends travel as several.
constexpr std::array<std::size_t, 4> kSegmentBytes{1'448, 9'000, 65'536, 65'536};

int fails(int error) {
    errno = error;
    return -1;
}

Address address_of(const sockaddr* address) {
    sockaddr_in v4{};
    assert(address->sa_family == AF_INET);
    std::memcpy(&v4, address, sizeof v4);
    return {ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
}

}  // namespace

void File::changed() {
    pollers.wake_all();
    for (const auto& watcher : watchers) {
        if (const auto epoll = watcher.lock()) epoll->waiters.wake_all();
    }
}

std::uint32_t Socket::ready() const {
    switch (state) {
        case State::kListening:
            return accepted.empty() ? 0U : static_cast<std::uint32_t>(EPOLLIN);
        case State::kConnected: {
            std::uint32_t flags = 0;
            if (unread_bytes > 0 || has_end) flags |= EPOLLIN;
            if (has_end) flags |= EPOLLRDHUP;
            if (has_end && is_shut) flags |= EPOLLHUP;
            if (is_broken || other == nullptr || other->in_flight + other->unread_bytes < other->window) {
                flags |= EPOLLOUT;
            }
            return flags;
        }
        case State::kFailed:
            return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP;
        default:
            return 0;
    }
}

void Socket::closed() { state = State::kClosed; }

Kernel::Kernel(World& world, std::unique_ptr<Weather> weather, std::vector<std::size_t> window_bytes,
               FaultCounts& counts, Sent sent)
    : world_(world),
      random_(world.random()),
      weather_(std::move(weather)),
      window_bytes_(std::move(window_bytes)),
      counts_(counts),
      sent_(std::move(sent)) {
    assert(g_kernel == nullptr);
    g_kernel = this;
}

Kernel::~Kernel() {
    for (const auto& weak : sockets_) {
        if (const auto socket = weak.lock()) socket->other = nullptr;
    }
    g_kernel = nullptr;
}

Kernel* Kernel::current() { return g_kernel; }

// ---- descriptors

int Kernel::install(std::shared_ptr<File> file) {
    int fd = kFirstFd;
    for (const auto& [used, unused] : files_) {
        if (used != fd) break;
        ++fd;
    }
    files_.emplace(fd, std::move(file));
    return fd;
}

template <class Kind>
std::shared_ptr<Kind> Kernel::get(int fd) {
    const auto found = files_.find(fd);
    return found == files_.end() ? nullptr : std::dynamic_pointer_cast<Kind>(found->second);
}

Ms Kernel::deadline(int timeout_ms) const {
    return timeout_ms < 0 ? kNever : world_.now_ms() + static_cast<Ms>(timeout_ms);
}

int Kernel::close(int fd) {
    const auto found = files_.find(fd);
    if (found == files_.end()) return fails(EBADF);
    const auto file = std::move(found->second);
    files_.erase(found);
    for (const auto& watcher : file->watchers) {
        if (const auto epoll = watcher.lock()) epoll->watches.erase(fd);
    }
    if (const auto socket = std::dynamic_pointer_cast<Socket>(file)) {
        const bool was_connected = socket->state == Socket::State::kConnected;
        const bool leaves_unread = socket->unread_bytes > 0;
        for (const auto& waiting : std::exchange(socket->accepted, {})) {
            if (waiting->other) reset(waiting->other, 0);
        }
        socket->closed();
        if (was_connected && !socket->is_severed && socket->other != nullptr) {
            if (leaves_unread) {
                reset(socket->other, random_.below(3));
            } else if (!socket->is_shut) {
                send_end(socket);
            }
        }
        part(socket);
    }
    return 0;
}

int Kernel::eventfd(unsigned count) {
    auto file = std::make_shared<EventFd>();
    file->count = count;
    return install(std::move(file));
}

ssize_t Kernel::read_event(int fd, void* into) {
    const auto file = get<EventFd>(fd);
    if (!file) return fails(EBADF);
    if (file->count == 0) return fails(EAGAIN);
    std::memcpy(into, &file->count, sizeof file->count);
    file->count = 0;
    return sizeof file->count;
}

ssize_t Kernel::write_event(int fd, const void* from) {
    const auto file = get<EventFd>(fd);
    if (!file) return fails(EBADF);
    std::uint64_t more = 0;
    std::memcpy(&more, from, sizeof more);
    file->count += more;
    file->changed();
    return sizeof more;
}

// ---- waiting for readiness

int Kernel::epoll_create() { return install(std::make_shared<Epoll>()); }

int Kernel::epoll_control(int epoll_fd, int operation, int fd, const epoll_event* event) {
    const auto epoll = get<Epoll>(epoll_fd);
    const auto file = get<File>(fd);
    if (!epoll || !file) return fails(EBADF);
    if (operation == EPOLL_CTL_DEL) {
        epoll->watches.erase(fd);
        std::erase_if(file->watchers, [&](const auto& watcher) { return watcher.lock() == epoll; });
        return 0;
    }
    if (operation == EPOLL_CTL_ADD) {
        if (epoll->watches.contains(fd)) return fails(EEXIST);
        file->watchers.push_back(epoll);
    }
    epoll->watches[fd] = {file, *event};
    epoll->waiters.wake_all();
    return 0;
}

int Kernel::epoll_wait(int epoll_fd, std::span<epoll_event> events, int timeout_ms) {
    const auto epoll = get<Epoll>(epoll_fd);
    if (!epoll) return fails(EBADF);
    const Ms until_ms = deadline(timeout_ms);
    while (true) {
        std::size_t count = 0;
        for (auto at = epoll->watches.begin(); at != epoll->watches.end() && count < events.size(); ++at) {
            const auto file = at->second.file.lock();
            if (!file) continue;
            const std::uint32_t wanted = at->second.event.events | EPOLLERR | EPOLLHUP;
            if (const std::uint32_t flags = file->ready() & wanted; flags != 0) {
                events[count] = at->second.event;
                events[count++].events = flags;
            }
        }
        if (count > 1)
            std::rotate(events.data(), events.data() + random_.below(count), events.data() + count);
        if (count > 0 || world_.now_ms() >= until_ms) return static_cast<int>(count);
        epoll->waiters.add(world_.running());
        world_.wait(until_ms);
    }
}

int Kernel::poll(std::span<pollfd> entries, int timeout_ms) {
    const Ms until_ms = deadline(timeout_ms);
    while (true) {
        int count = 0;
        for (pollfd& entry : entries) {
            entry.revents = 0;
            const auto file = get<File>(entry.fd);
            const auto wanted = static_cast<std::uint32_t>(static_cast<unsigned short>(entry.events));
            // POLLIN, POLLOUT, POLLERR and POLLHUP have the numbers of their EPOLL namesakes.
            const auto flags = file ? file->ready() & (wanted | EPOLLERR | EPOLLHUP) : 0U;
            entry.revents = static_cast<short>(file ? flags : static_cast<std::uint32_t>(POLLNVAL));
            count += entry.revents != 0 ? 1 : 0;
        }
        if (count > 0 || world_.now_ms() >= until_ms) return count;
        for (const pollfd& entry : entries) {
            if (const auto file = get<File>(entry.fd)) file->pollers.add(world_.running());
        }
        world_.wait(until_ms);
    }
}

// ---- connecting

int Kernel::socket(int type) {
    auto made = std::make_shared<Socket>();
    made->host = &world_.here();
    made->is_blocking = (type & SOCK_NONBLOCK) == 0;
    made->is_severed = made->host->is_down;
    made->window = random_.pick(window_bytes_);
    if (sockets_.size() > 256) std::erase_if(sockets_, [](const auto& each) { return each.expired(); });
    sockets_.push_back(made);
    return install(std::move(made));
}

int Kernel::bind(int fd, const sockaddr* address) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    Address wanted = address_of(address);
    if (wanted.host == 0) wanted.host = socket->host->address;
    if (wanted.port == 0) wanted.port = ++last_port_;
    const auto taken = listeners_.find(wanted);
    if (taken != listeners_.end()) {
        const auto before = taken->second.lock();
        if (before && before->state == Socket::State::kListening && !before->is_severed)
            return fails(EADDRINUSE);
    }
    socket->local = wanted;
    return 0;
}

int Kernel::listen(int fd) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    socket->state = Socket::State::kListening;
    listeners_[socket->local] = socket;
    return 0;
}

int Kernel::accept(int fd) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (socket->accepted.empty()) return fails(EAGAIN);
    const auto taken = socket->accepted.front();
    socket->accepted.pop_front();
    return install(taken);
}

Host* Kernel::host_at(std::uint32_t address) {
    for (Host& host : world_.hosts()) {
        if (host.address == address) return &host;
    }
    return nullptr;
}

int Kernel::connect(int fd, const sockaddr* address) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    socket->remote = address_of(address);
    socket->local = {socket->host->address, ++last_port_};
    socket->is_dialler = true;
    socket->connection = ++connections_;
    socket->state = Socket::State::kConnecting;
    const Host* target = host_at(socket->remote.host);
    assert(target != nullptr);
    const Fate fate = weather_->passage({socket->host, target, 64});
    // Connecting is tried again by the network: a lost packet is a delay here.
    const Ms delay_ms = fate.delay_ms + (fate.is_broken ? 1'000 : 0);
    if (!socket->is_severed) {
        world_.at(world_.now_ms() + delay_ms, [this, socket] { arrive_at_listener(socket); });
    }
    return fails(EINPROGRESS);
}

void Kernel::arrive_at_listener(const SocketPtr& from) {
    if (from->state != Socket::State::kConnecting || from->is_severed) return;
    Host& target = *host_at(from->remote.host);
    if (target.is_down && target.is_silent) return;
    const auto found = listeners_.find(from->remote);
    const auto listener = found == listeners_.end() ? nullptr : found->second.lock();
    const Fate back = weather_->passage({&target, from->host, 64});
    if (!listener || listener->state != Socket::State::kListening || listener->is_severed) {
        world_.at(world_.now_ms() + back.delay_ms, [this, from] { refuse(from); });
        return;
    }
    auto end = std::make_shared<Socket>();
    end->host = &target;
    end->connection = from->connection;
    end->state = Socket::State::kConnected;
    end->local = from->remote;
    end->remote = from->local;
    end->window = random_.pick(window_bytes_);
    end->other = from;
    sockets_.push_back(end);
    listener->accepted.push_back(end);
    listener->changed();
    world_.at(world_.now_ms() + back.delay_ms, [this, from, end] {
        if (from->is_severed) return;
        if (from->state != Socket::State::kConnecting) {
            reset(end, random_.below(3));  // given up meanwhile
            return;
        }
        from->state = Socket::State::kConnected;
        from->other = end;
        from->changed();
    });
}

void Kernel::refuse(const SocketPtr& from) {
    if (from->state != Socket::State::kConnecting || from->is_severed) return;
    ++counts_[Fault::kRefused];
    from->state = Socket::State::kFailed;
    from->error = ECONNREFUSED;
    from->changed();
}

int Kernel::name(int fd, sockaddr* address, socklen_t* length, bool is_local) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (!is_local && socket->state != Socket::State::kConnected) return fails(ENOTCONN);
    const Address& named = is_local ? socket->local : socket->remote;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(named.port);
    v4.sin_addr.s_addr = htonl(named.host);
    std::memcpy(address, &v4, std::min<std::size_t>(*length, sizeof v4));
    *length = sizeof v4;
    return 0;
}

int Kernel::get_option(int fd, int level, int option, void* value) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (level != SOL_SOCKET || option != SO_ERROR) return fails(ENOPROTOOPT);
    const int error = std::exchange(socket->error, 0);
    std::memcpy(value, &error, sizeof error);
    return 0;
}

int Kernel::set_option(int fd, int level, int option, const void* value) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (level == SOL_SOCKET && option == SO_RCVTIMEO) {
        timeval limit{};
        std::memcpy(&limit, value, sizeof limit);
        socket->receive_timeout_ms =
            static_cast<Ms>(limit.tv_sec) * 1'000 + static_cast<Ms>(limit.tv_usec) / 1'000;
    }
    return 0;
}

int Kernel::set_flags(int fd, int flags) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    socket->is_blocking = (flags & O_NONBLOCK) == 0;
    return 0;
}

// ---- bytes

Fate Kernel::fate(const Socket& from, const Socket& to, std::size_t bytes) {
    return weather_->passage({from.host, to.host, bytes});
}

ssize_t Kernel::send(int fd, std::span<const iovec> pieces, int) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (socket->state == Socket::State::kFailed) return fails(socket->error != 0 ? socket->error : EPIPE);
    if (socket->state != Socket::State::kConnected || socket->is_shut) return fails(EPIPE);
    const SocketPtr other = socket->other;
    assert(other != nullptr);
    const std::size_t taken = other->in_flight + other->unread_bytes;
    std::size_t room = taken < other->window ? other->window - taken : 0;
    // What falls into the void fills no window.
    if (socket->is_broken || socket->is_severed) room = other->window;
    if (room == 0) return fails(EAGAIN);
    std::size_t total = 0;
    std::vector<std::uint8_t> bytes;
    for (const iovec& piece : pieces) {
        const std::size_t count = std::min(piece.iov_len, room - total);
        const auto* from = static_cast<const std::uint8_t*>(piece.iov_base);
        bytes.insert(bytes.end(), from, from + count);
        total += count;
        if (total == room) break;
    }
    if (total == 0 || socket->is_severed) return static_cast<ssize_t>(total);
    sent_(*socket, bytes);
    for (std::size_t at = 0; at < bytes.size() && !socket->is_broken;) {
        const std::size_t count = std::min(bytes.size() - at, random_.pick(kSegmentBytes));
        const Fate met = fate(*socket, *other, count);
        if (met.is_broken) {
            socket->is_broken = other->is_broken = true;
            reset(socket, random_.between(1, kNoticeMaxMs));
            reset(other, random_.between(1, kNoticeMaxMs));
            break;
        }
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        travel(other,
               {world_.now_ms() + met.delay_ms, {first, first + static_cast<std::ptrdiff_t>(count)}, false});
        at += count;
    }
    return static_cast<ssize_t>(total);
}

// In order within the connection: a segment arrives when it and all before it have.
void Kernel::travel(const SocketPtr& to, Socket::Segment segment) {
    if (!to->under_way.empty()) {
        segment.arrival_ms = std::max(segment.arrival_ms, to->under_way.back().arrival_ms);
    }
    segment.order = ++segments_;
    to->in_flight += segment.bytes.size();
    world_.at(segment.arrival_ms, [this, to] { land(to); });
    to->under_way.push_back(std::move(segment));
}

void Kernel::land(const SocketPtr& to) {
    if (to->under_way.empty()) return;
    // Nobody there confirms it, so that its sender's window stays filled.
    if (to->is_severed) return;
    Socket::Segment segment = std::move(to->under_way.front());
    to->under_way.pop_front();
    to->in_flight -= segment.bytes.size();
    if (to->state != Socket::State::kConnected) {
        if (to->other && !segment.is_end) reset(to->other, random_.below(3));
        return;
    }
    if (to->other && !segment.is_end) {
        auto& last = last_landed_[{to->other->host, to->host}];
        if (segment.order < last) ++counts_[Fault::kReorder];
        last = std::max(last, segment.order);
    }
    if (segment.is_end) {
        to->has_end = true;
    } else {
        to->unread_bytes += segment.bytes.size();
        to->unread.push_back(std::move(segment.bytes));
    }
    to->changed();
}

void Kernel::send_end(const SocketPtr& from) {
    from->is_shut = true;
    if (from->is_broken || from->is_severed || from->other == nullptr) return;
    const Fate met = fate(*from, *from->other, 40);
    travel(from->other, {world_.now_ms() + met.delay_ms, {}, true});
}

void Kernel::reset(const SocketPtr& to, Ms delay_ms) {
    world_.at(world_.now_ms() + delay_ms, [to] {
        if (to->state != Socket::State::kConnected || to->is_severed) return;
        to->state = Socket::State::kFailed;
        to->error = ECONNRESET;
        to->unread.clear();
        to->unread_bytes = 0;
        to->changed();
    });
}

// Once both ends are closed they need not know each other.
void Kernel::part(const SocketPtr& socket) {
    const SocketPtr other = socket->other;
    if (other == nullptr || other->state != Socket::State::kClosed) return;
    if (!socket->under_way.empty() || !other->under_way.empty()) return;
    other->other = nullptr;
    socket->other = nullptr;
}

ssize_t Kernel::receive(int fd, std::span<const iovec> pieces, int flags) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    const bool waits = socket->is_blocking && (flags & MSG_DONTWAIT) == 0;
    const Ms until_ms =
        socket->receive_timeout_ms == kNever ? kNever : world_.now_ms() + socket->receive_timeout_ms;
    while (true) {
        if (socket->state == Socket::State::kFailed)
            return fails(socket->error != 0 ? socket->error : ECONNRESET);
        if (socket->state != Socket::State::kConnected) return fails(ENOTCONN);
        if (socket->unread_bytes > 0) break;
        if (socket->has_end) return 0;
        if (!waits || world_.now_ms() >= until_ms) return fails(EAGAIN);
        socket->pollers.add(world_.running());
        world_.wait(until_ms);
    }
    std::size_t total = 0;
    for (const iovec& piece : pieces) {
        auto* into = static_cast<std::uint8_t*>(piece.iov_base);
        std::size_t left = piece.iov_len;
        while (left > 0 && socket->unread_bytes > 0) {
            auto& front = socket->unread.front();
            const std::size_t count = std::min(left, front.size() - socket->unread_from);
            std::memcpy(into, front.data() + socket->unread_from, count);
            total += count;
            if ((flags & MSG_PEEK) != 0) return static_cast<ssize_t>(total);
            into += count;
            left -= count;
            socket->unread_bytes -= count;
            socket->unread_from += count;
            if (socket->unread_from < front.size()) continue;
            socket->unread.pop_front();
            socket->unread_from = 0;
        }
    }
    if (total > 0 && socket->other) socket->other->changed();
    return static_cast<ssize_t>(total);
}

int Kernel::shutdown(int fd, int how) {
    const auto socket = get<Socket>(fd);
    if (!socket) return fails(EBADF);
    if (socket->state != Socket::State::kConnected) return fails(ENOTCONN);
    if (how != SHUT_RD && !socket->is_shut) send_end(socket);
    if (how != SHUT_WR) socket->has_end = true;
    socket->changed();
    return 0;
}

// ---- ends of processes

void Kernel::sever(Host& host, bool is_told) {
    for (const auto& weak : sockets_) {
        const auto socket = weak.lock();
        if (!socket || socket->host != &host || socket->state == Socket::State::kClosed) continue;
        socket->is_severed = true;
        if (!is_told) continue;
        if (socket->other) reset(socket->other, random_.between(0, 3));
        for (const auto& waiting : socket->accepted) {
            waiting->is_severed = true;
            if (waiting->other) reset(waiting->other, random_.between(0, 3));
        }
    }
}

void Kernel::revive(Host& host) {
    for (const auto& weak : sockets_) {
        const auto socket = weak.lock();
        if (!socket || socket->host != &host || !socket->is_severed || !socket->other) continue;
        reset(socket->other, random_.between(0, 500));
    }
}

}  // namespace simulation
