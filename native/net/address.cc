#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "net/signals_blocked.h"

namespace mooncake::net {

namespace {

std::atomic<int> resolutions_running = 0;

// A peer that vanished without a word is noticed after about 90 s even on an idle connection.
constexpr int kKeepIdleS = 60;
constexpr int kKeepIntervalS = 10;
constexpr int kKeepProbes = 3;

void set_option(int fd, int level, int name, int value) {
    // These are improvements: a kernel that refuses one still gives a working connection.
    static_cast<void>(setsockopt(fd, level, name, &value, sizeof value));
}

std::vector<Address> look_up(const Endpoint& endpoint, int flags, std::string& why) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int failed =
        getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
    std::vector<Address> addresses;
    if (failed != 0) {
        why = to_text(endpoint) + ": " +
              (failed == EAI_SYSTEM ? errno_text(errno) : std::string(gai_strerror(failed)));
        return addresses;
    }
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        Address address;
        std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
        address.length = entry->ai_addrlen;
        addresses.push_back(address);
    }
    freeaddrinfo(list);
    return addresses;
}

template <class Body>
void start_quiet_thread(Body body) {
    const SignalsBlocked blocked;
    std::thread(std::move(body)).detach();
}

}  // namespace

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string Address::text() const {
    char host[INET6_ADDRSTRLEN] = "";
    if (storage.ss_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    } else if (storage.ss_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
            inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof host);
        } else {
            inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        }
    } else {
        return "unknown";
    }
    return to_text({host, port()});
}

std::uint16_t Address::port() const {
    if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
    if (storage.ss_family == AF_INET6) {
        return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
    }
    return 0;
}

Address local_address(int fd) {
    Address address;
    address.length = sizeof address.storage;
    if (getsockname(fd, address.get(), &address.length) != 0) address.length = 0;
    return address;
}

Address peer_address(int fd) {
    Address address;
    address.length = sizeof address.storage;
    if (getpeername(fd, address.get(), &address.length) != 0) address.length = 0;
    return address;
}

std::shared_ptr<Resolution> Resolution::start(const Endpoint& endpoint) {
    auto resolution = std::make_shared<Resolution>();
    resolution->ready_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    std::string why;
    if (!resolution->ready_fd_) {
        resolution->finish({}, to_text(endpoint) + ": " + errno_text(errno));
        return resolution;
    }
    std::vector<Address> addresses = look_up(endpoint, AI_NUMERICHOST, why);
    if (!addresses.empty()) {
        resolution->finish(std::move(addresses), "");
        return resolution;
    }
    if (resolutions_running.fetch_add(1) >= kResolutionsMax) {
        resolutions_running.fetch_sub(1);
        resolution->finish({}, to_text(endpoint) + ": " + std::to_string(kResolutionsMax) +
                                   " names are being resolved already");
        return resolution;
    }
    try {
        start_quiet_thread([resolution, endpoint]() noexcept {
            std::string failure;
            std::vector<Address> found = look_up(endpoint, AI_ADDRCONFIG, failure);
            // 127.0.0.1 counts as no configured address: a host without a network still knows "localhost".
            if (found.empty()) found = look_up(endpoint, 0, failure);
            resolutions_running.fetch_sub(1);
            resolution->finish(std::move(found), std::move(failure));
        });
    } catch (const std::system_error& error) {
        resolutions_running.fetch_sub(1);
        resolution->finish({}, to_text(endpoint) + ": no thread to resolve it: " + error.what());
    }
    return resolution;
}

bool Resolution::ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
}

std::vector<Address> Resolution::take(std::string& why) {
    const std::lock_guard lock(mutex_);
    why = why_;
    return std::move(addresses_);
}

void Resolution::finish(std::vector<Address> addresses, std::string why) {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    addresses_ = std::move(addresses);
    why_ = std::move(why);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(ready_fd_.get(), &one, sizeof one);
}

FileDescriptor new_socket(int family) {
    FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (fd) set_stream_options(fd.get());
    return fd;
}

void set_stream_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

int start_connect(int fd, const Address& address) {
    if (::connect(fd, address.get(), address.length) == 0) return finish_connect(fd);
    return errno == EINTR ? EINPROGRESS : errno;
}

int finish_connect(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
    const Address local = local_address(fd);
    const Address peer = peer_address(fd);
    if (peer.length == 0) return ENOTCONN;
    if (local.length == peer.length && std::memcmp(&local.storage, &peer.storage, local.length) == 0) {
        return ECONNREFUSED;
    }
    return 0;
}

}  // namespace mooncake::net
