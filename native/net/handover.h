// Opens a connection to somebody in this same process: makes a pair of sockets, keeps one end and hands the
// other over through a Unix socket, with a text that says what it is for. No port listens, so no other
// process can take part.
#pragma once

#include <string_view>

#include "net/dial.h"
#include "net/file_descriptor.h"

namespace mooncake::net {

class Handover {
  public:
    // taker: our end of a SOCK_SEQPACKET pair; each message that goes there carries a label and one socket.
    explicit Handover(FileDescriptor taker) : taker_(std::move(taker)) {}

    // Never waits: a taker that is gone, or has too many to take already, is a failure. Any thread.
    Dialled connect(std::string_view label) const;

  private:
    const FileDescriptor taker_;
};

}  // namespace mooncake::net
