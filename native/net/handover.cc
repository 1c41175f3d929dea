#include "net/handover.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "net/address.h"

namespace mooncake::net {

Dialled Handover::connect(std::string_view label) const {
    Dialled result;
    const auto failed = [&](const char* what) {
        result.fd.reset();
        result.why = std::string(label) + ": " + what + ": " + errno_text(errno);
        return std::move(result);
    };
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
        return failed("no pair of sockets");
    }
    result.fd = FileDescriptor(pair[0]);
    const FileDescriptor theirs(pair[1]);

    iovec text{const_cast<char*>(label.data()), label.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int handed = theirs.get();
    std::memcpy(CMSG_DATA(rights), &handed, sizeof handed);
    while (::sendmsg(taker_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno != EINTR) return failed("nobody takes the connection");
    }
    return result;
}

}  // namespace mooncake::net
