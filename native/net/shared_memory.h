// A node's memory as a client of the same host has it: mapped for reading, once a node however many
// connections there are.
//
// What lies there may be looked at only under a reference that the node holds for this client. A mapping
// outlives its connections and the node itself, and is not inherited by forks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/file_descriptor.h"
#include "wire/shared_memory.h"

namespace mooncake::net {

class SharedMemory {
  public:
    // descriptors: as they came with the reply. nullptr: `why` tells what is wrong with it.
    static std::shared_ptr<const SharedMemory> map(const wire::MapReply& reply,
                                                   std::span<const FileDescriptor> descriptors,
                                                   std::string& why);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // nullptr: [offset, offset + size) does not lie in a segment that is mapped.
    const std::uint8_t* at(std::size_t segment, std::uint64_t offset, std::uint64_t size) const;
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t view_bytes_max() const { return view_bytes_max_; }
    bool is_of_this_process() const;  // not of the parent of a fork

  private:
    struct Segment {
        const std::uint8_t* data = nullptr;  // nullptr: not lent
        std::uint64_t bytes = 0;
    };
    SharedMemory();

    const pid_t process_;
    std::vector<Segment> segments_;
    std::uint64_t bytes_ = 0;
    std::uint64_t view_bytes_max_ = 0;
};

}  // namespace mooncake::net
