// Socket addresses: from numbers, from names (resolved off the caller's thread), to text; and the options
// every socket of ours carries.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/endpoint.h"
#include "net/file_descriptor.h"

namespace mooncake::net {

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    std::string text() const;  // "10.0.0.7:41234", "[::1]:50001"; IPv4 in IPv6 as IPv4
    std::uint16_t port() const;
};

Address local_address(int fd);
Address peer_address(int fd);

// Names being resolved at once in this process, each on a thread of its own since getaddrinfo cannot be
// interrupted; beyond it a resolution fails at once.
inline constexpr int kResolutionsMax = 16;

// The addresses of a name. Ready at once for numeric hosts; else fd() becomes readable when it is.
class Resolution {
  public:
    static std::shared_ptr<Resolution> start(const Endpoint& endpoint);

    int fd() const { return ready_fd_.get(); }
    bool ready() const;
    // Once ready. Empty: `why` names the endpoint and the cause.
    std::vector<Address> take(std::string& why);

  private:
    void finish(std::vector<Address> addresses, std::string why);

    FileDescriptor ready_fd_;
    mutable std::mutex mutex_;  // guards the three below
    bool ready_ = false;
    std::vector<Address> addresses_;
    std::string why_;
};

// Non-blocking TCP socket, closed on exec, with TCP_NODELAY and keepalive. Empty: errno says why.
FileDescriptor new_socket(int family);
void set_stream_options(int fd);

// connect() of a non-blocking socket: 0 done, EINPROGRESS, or the error.
int start_connect(int fd, const Address& address);
// Once writable: 0 or the error. A socket that met itself (a closed port of the ephemeral range can be its
// own source port) counts as ECONNREFUSED.
int finish_connect(int fd);

std::string errno_text(int error);

// Each address gets an equal share of what is left, so that one that swallows packets does not use up the
// time of the others.
inline std::uint64_t share_ms(std::uint64_t now_ms, std::uint64_t deadline_ms, std::size_t addresses_left) {
    return now_ms >= deadline_ms ? 0 : (deadline_ms - now_ms) / addresses_left + 1;
}

}  // namespace mooncake::net
