#include "net/dial.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "net/address.h"
#include "net/event_loop.h"

namespace mooncake::net {

bool wait_for(int fd, short events, const Patience& patience) {
    const std::uint64_t slice_ms = patience.given_up ? kLookUpMs : 60'000;
    while (true) {
        const std::uint64_t now_ms = monotonic_ms();
        pollfd entry{fd, events, 0};
        const auto left = patience.deadline_ms > now_ms ? patience.deadline_ms - now_ms : 0;
        const int count = ::poll(&entry, 1, static_cast<int>(std::min(left, slice_ms)));
        if (count > 0) return true;
        if ((count == 0 && monotonic_ms() >= patience.deadline_ms) || patience.is_given_up()) return false;
    }
}

namespace {

// 0, the error, or ETIMEDOUT at the deadline.
int try_address(const Address& address, const Patience& patience, FileDescriptor& fd) {
    fd = new_socket(address.storage.ss_family);
    if (!fd) return errno;
    const int started = start_connect(fd.get(), address);
    if (started != EINPROGRESS) return started;
    if (!wait_for(fd.get(), POLLOUT, patience)) return ETIMEDOUT;
    return finish_connect(fd.get());
}

}  // namespace

Dialled dial(const Endpoint& endpoint, const Patience& patience) {
    Dialled result;
    const auto resolution = Resolution::start(endpoint);
    if (!resolution->ready() && !wait_for(resolution->fd(), POLLIN, patience)) {
        result.timed_out = true;
        result.why = to_text(endpoint) + ": the name was not resolved in time";
        return result;
    }
    const std::vector<Address> addresses = resolution->take(result.why);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const std::uint64_t now_ms = monotonic_ms();
        const std::uint64_t until_ms = now_ms + share_ms(now_ms, patience.deadline_ms, addresses.size() - i);
        const int error = try_address(
            addresses[i], {std::min(until_ms, patience.deadline_ms), patience.given_up}, result.fd);
        if (error == 0) {
            result.why.clear();
            return result;
        }
        result.fd.reset();
        result.timed_out = error == ETIMEDOUT;
        if (!result.why.empty()) result.why += "; ";
        result.why += addresses[i].text() + ": " + errno_text(error);
        if (patience.is_given_up()) break;
    }
    return result;
}

}  // namespace mooncake::net
