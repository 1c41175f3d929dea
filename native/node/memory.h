// The memory that a node lends: one memfd a segment, or a part of a file in memory that somebody else made,
// mapped once, faulted in by background threads.
//
// Owns mappings, descriptors and the faulting; knows nothing of what is stored where (node/core/directory.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/file_descriptor.h"

namespace mooncake::node {

struct MemoryOptions {
    bool hugepages = false;  // 2 MiB pages from the kernel's pool (vm.nr_hugepages)
};

// A part of a file in memory (tmpfs, hugetlbfs, a memfd by its path in /proc) that exists already.
struct MemoryFile {
    std::string path;
    std::uint64_t offset = 0;  // a multiple of its page
};

// A sealed memfd (it can neither shrink nor grow) and the one writable mapping of it. Not inherited by forks.
//
// Of a MemoryFile: that part, locked against other nodes; what it holds is overwritten. Others can write it
// too, and must not: values that they damage do not match their checksums. Who shortens the file kills this
// process (SIGBUS), unless it is a memfd, which is sealed against it.
class MemorySegment {
  public:
    // Throws std::runtime_error naming segment, size and setting.
    MemorySegment(const std::string& name, std::uint64_t bytes, const MemoryOptions& options);
    MemorySegment(const MemoryFile& file, std::uint64_t bytes);
    ~MemorySegment();
    MemorySegment(const MemorySegment&) = delete;
    MemorySegment& operator=(const MemorySegment&) = delete;

    std::uint8_t* data() const { return data_; }
    std::uint64_t bytes() const { return bytes_; }
    int fd() const { return fd_; }
    std::uint64_t offset() const { return offset_; }  // in the file
    // Whether other processes may map it: it can never become shorter, which would kill who reads it.
    bool is_lendable() const { return is_lendable_; }
    // A descriptor that gives no right to write; empty: is_lendable() is false, or /proc is not there.
    net::FileDescriptor open_to_read() const;
    // Makes [offset, offset + length) resident. False, with errno's text in `why`, when memory ran out.
    bool fault_in(std::uint64_t offset, std::uint64_t length, std::string& why) const;

  private:
    int fd_ = -1;
    std::uint8_t* data_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint64_t offset_ = 0;
    bool is_lendable_ = false;
};

// Faults segments in, one after the other, from their start; tells how far each one is ready.
class MemoryFaulter {
  public:
    // `ready(index, bytes)`: the first `bytes` of segments[index] are resident; called on a faulting thread,
    // with rising values. `failed`: faulting stopped for good, and why. The segments must outlive this.
    MemoryFaulter(std::vector<const MemorySegment*> segments, std::size_t threads,
                  std::function<void(std::size_t, std::uint64_t)> ready,
                  std::function<void(std::string)> failed);
    ~MemoryFaulter();  // stops after the steps under way
    void stop();

  private:
    struct Step {
        std::size_t segment;
        std::uint64_t offset;
        std::uint64_t length;
    };
    void run();
    void finish(std::size_t step);

    std::vector<const MemorySegment*> segments_;
    std::function<void(std::size_t, std::uint64_t)> ready_;
    std::function<void(std::string)> failed_;
    std::vector<Step> steps_;
    std::atomic<std::size_t> next_step_ = 0;
    std::atomic<bool> stopping_ = false;
    std::mutex finished_mutex_;  // guards the two below
    std::vector<bool> finished_;
    std::size_t finished_prefix_ = 0;
    std::vector<std::thread> threads_;
};

// Throws std::runtime_error naming the setting and both values when the container's memory limit (cgroup v2
// memory.max, v1 memory.limit_in_bytes) or the machine cannot hold `bytes`.
void check_memory_limit(std::uint64_t bytes);

}  // namespace mooncake::node
