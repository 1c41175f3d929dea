#include "net/view_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "wire/frame.h"
#include "wire/shared_memory.h"

namespace mooncake::net {

ViewLink::ViewLink(FileDescriptor connection, std::shared_ptr<const SharedMemory> memory)
    : connection_(std::move(connection)), memory_(std::move(memory)) {}

ViewLink::~ViewLink() {
    // A child that was forked meanwhile holds the socket open too.
    if (is_of_this_process()) ::shutdown(connection_.get(), SHUT_RDWR);
}

void ViewLink::begin_exchange() {
    const std::lock_guard lock(mutex_);
    is_in_exchange_ = true;
}

void ViewLink::end_exchange() {
    const std::lock_guard lock(mutex_);
    is_in_exchange_ = false;
    send_closes();
}

void ViewLink::leave() {
    const std::lock_guard lock(mutex_);
    if (is_in_exchange_) is_over_ = true;
}

bool ViewLink::is_over() {
    const std::lock_guard lock(mutex_);
    return is_over_;
}

void ViewLink::release(std::uint64_t reference) {
    if (!is_of_this_process()) return;
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    to_close_.push_back(reference);
    if (!is_in_exchange_) send_closes();
}

void ViewLink::send_closes() {
    while (!to_close_.empty() && !is_over_) {
        const auto count = std::min(to_close_.size(), wire::kReferencesMax);
        wire::FrameHeader header;
        header.verb = wire::Verb::kClose;
        wire::Buffer frame;
        const auto start = wire::begin_frame(frame, header);
        wire::Writer writer(frame);
        wire::encode_close(std::span(to_close_).first(count), writer);
        wire::finish_frame(frame, start);
        ssize_t n = -1;
        do {
            n = ::send(connection_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        } while (n < 0 && errno == EINTR);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        // A part of a frame leaves nothing that could follow it; the references go with the last view then.
        if (n != static_cast<ssize_t>(frame.size())) {
            is_over_ = true;
            return;
        }
        to_close_.erase(to_close_.begin(), to_close_.begin() + static_cast<std::ptrdiff_t>(count));
    }
}

}  // namespace mooncake::net
