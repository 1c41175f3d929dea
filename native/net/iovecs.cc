#include "net/iovecs.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

namespace mooncake::net {

namespace {

constexpr std::size_t kScratchBytes = 64u << 10;

void* scratch() {
    static thread_local const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(kScratchBytes);
    return memory.get();
}

}  // namespace

ssize_t receive_some(int fd, std::span<const iovec> targets, std::size_t& asked, int flags,
                     std::size_t bytes_max) {
    std::array<iovec, kIovecsACall> pieces;
    std::size_t count = 0;
    asked = 0;
    for (const iovec& target : targets.first(std::min(targets.size(), pieces.size()))) {
        iovec& piece = pieces[count++];
        piece = target;
        if (target.iov_base == nullptr) {
            piece.iov_base = scratch();
            piece.iov_len = std::min(target.iov_len, kScratchBytes);
        }
        piece.iov_len = std::min(piece.iov_len, bytes_max - asked);
        asked += piece.iov_len;
        if (piece.iov_len < target.iov_len || asked == bytes_max) break;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    return ::recvmsg(fd, &message, flags);
}

}  // namespace mooncake::net
