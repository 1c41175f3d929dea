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

short Dialling::events() const { return socket_ ? POLLOUT : POLLIN; }

bool Dialling::advance() {
    if (!is_resolved_) {
        if (!resolution_->ready()) {
            if (monotonic_ms() < deadline_ms_) return false;
            fail_now(ETIMEDOUT);
            return true;
        }
        is_resolved_ = true;
        addresses_ = resolution_->take(result_.why);
        return try_next();
    }
    pollfd entry{socket_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) {
        if (monotonic_ms() < step_until_ms_) return false;
        note(ETIMEDOUT);
        return try_next();
    }
    const int error = finish_connect(socket_.get());
    if (error != 0) {
        note(error);
        return try_next();
    }
    result_.why.clear();
    result_.timed_out = false;
    result_.fd = std::move(socket_);
    return true;
}

// True: over, well or not.
bool Dialling::try_next() {
    while (next_ < addresses_.size()) {
        const std::uint64_t now_ms = monotonic_ms();
        const Address& address = addresses_[next_];
        step_until_ms_ =
            std::min(now_ms + share_ms(now_ms, deadline_ms_, addresses_.size() - next_), deadline_ms_);
        ++next_;
        socket_ = new_socket(address.storage.ss_family);
        const int started = socket_ ? start_connect(socket_.get(), address) : errno;
        if (started == EINPROGRESS) return false;
        if (started == 0) {
            result_.why.clear();
            result_.timed_out = false;
            result_.fd = std::move(socket_);
            return true;
        }
        note(started);
    }
    return true;
}

void Dialling::note(int error) {
    result_.timed_out = error == ETIMEDOUT;
    if (!result_.why.empty()) result_.why += "; ";
    result_.why += addresses_[next_ - 1].text() + ": " + errno_text(error);
    socket_.reset();
}

void Dialling::fail_now(int error) {
    if (is_resolved_ && next_ > 0) return note(error);
    result_.timed_out = true;
    result_.why = to_text(endpoint_) + ": the name was not resolved in time";
}

Dialled dial(const Endpoint& endpoint, const Patience& patience) {
    Dialling dialling(endpoint, patience.deadline_ms);
    while (!dialling.advance()) {
        wait_for(dialling.fd(), dialling.events(), {dialling.due_ms(), patience.given_up});
        if (!patience.is_given_up()) continue;
        dialling.give_up();
        break;
    }
    return dialling.take();
}

}  // namespace mooncake::net
