#include "net/dial.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "net/address.h"
#include "net/event_loop.h"

namespace mooncake::net {

bool wait_for(int fd, short events, std::uint64_t deadline_ms) {
    while (true) {
        const std::uint64_t now_ms = monotonic_ms();
        pollfd entry{fd, events, 0};
        const auto left = deadline_ms > now_ms ? std::min<std::uint64_t>(deadline_ms - now_ms, 60'000) : 0;
        const int count = ::poll(&entry, 1, static_cast<int>(left));
        if (count > 0) return true;
        if (count == 0 && monotonic_ms() >= deadline_ms) return false;
    }
}

namespace {

// 0, the error, or ETIMEDOUT at the deadline.
int try_address(const Address& address, std::uint64_t deadline_ms, FileDescriptor& fd) {
    fd = new_socket(address.storage.ss_family);
    if (!fd) return errno;
    const int started = start_connect(fd.get(), address);
    if (started != EINPROGRESS) return started;
    if (!wait_for(fd.get(), POLLOUT, deadline_ms)) return ETIMEDOUT;
    return finish_connect(fd.get());
}

}  // namespace

Dialled dial(const Endpoint& endpoint, std::uint64_t deadline_ms) {
    Dialled result;
    const auto resolution = Resolution::start(endpoint);
    if (!resolution->ready() && !wait_for(resolution->fd(), POLLIN, deadline_ms)) {
        result.timed_out = true;
        result.why = to_text(endpoint) + ": the name was not resolved in time";
        return result;
    }
    const std::vector<Address> addresses = resolution->take(result.why);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const std::uint64_t now_ms = monotonic_ms();
        const std::uint64_t until_ms = now_ms + share_ms(now_ms, deadline_ms, addresses.size() - i);
        const int error = try_address(addresses[i], std::min(until_ms, deadline_ms), result.fd);
        if (error == 0) {
            result.why.clear();
            return result;
        }
        result.fd.reset();
        result.timed_out = error == ETIMEDOUT;
        if (!result.why.empty()) result.why += "; ";
        result.why += addresses[i].text() + ": " + errno_text(error);
    }
    return result;
}

}  // namespace mooncake::net
