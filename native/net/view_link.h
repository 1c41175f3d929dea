// The end of a Unix socket that a node's references for views of this process depend on: open as long as a
// view is, whatever becomes of the connection's use.
//
// The node takes the end of this end as a sign that nobody looks at its memory any more. So nothing but the
// last view, or the owner of the connection where there is none, may shut it down.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "net/file_descriptor.h"
#include "net/shared_memory.h"
#include "wire/bytes.h"

namespace mooncake::net {

class ViewLink {
  public:
    // connection: another descriptor of it. It is in an exchange of its owner's.
    ViewLink(FileDescriptor connection, std::shared_ptr<const SharedMemory> memory);
    ~ViewLink();
    ViewLink(const ViewLink&) = delete;
    ViewLink& operator=(const ViewLink&) = delete;

    // The owner sends a request, and has its whole answer: between, nothing else goes over the connection.
    void begin_exchange();
    void end_exchange();
    // The owner uses the connection no more; amid an exchange nothing can be sent any more.
    void leave();
    bool is_over();

    // Any thread; never waits. What cannot be sent now goes with what is sent next.
    void release(std::uint64_t reference);
    bool is_of_this_process() const { return memory_->is_of_this_process(); }

  private:
    void send_closes();

    const FileDescriptor connection_;
    const std::shared_ptr<const SharedMemory> memory_;
    std::mutex mutex_;  // innermost; guards what follows
    std::vector<std::uint64_t> to_close_;
    bool is_in_exchange_ = true;
    bool is_over_ = false;
};

}  // namespace mooncake::net
