#include "net/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "net/address.h"

namespace mooncake::net {

namespace {

// A file that could be shortened would kill who reads beyond its new end.
bool is_whole_for_good(int fd, const wire::MapRecord& record) {
    struct stat file{};
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &file) == 0 &&
           record.offset <= static_cast<std::uint64_t>(file.st_size) &&
           record.bytes <= static_cast<std::uint64_t>(file.st_size) - record.offset;
}

}  // namespace

SharedMemory::SharedMemory() : process_(::getpid()) {}

SharedMemory::~SharedMemory() {
    if (!is_of_this_process()) return;  // nothing is mapped in a child
    for (const auto& segment : segments_) {
        if (segment.data != nullptr) ::munmap(const_cast<std::uint8_t*>(segment.data), segment.bytes);
    }
}

std::shared_ptr<const SharedMemory> SharedMemory::map(const wire::MapReply& reply,
                                                      std::span<const FileDescriptor> descriptors,
                                                      std::string& why) {
    std::shared_ptr<SharedMemory> memory(new SharedMemory);
    memory->view_bytes_max_ = reply.view_bytes_max;
    std::size_t next = 0;
    for (const auto& record : reply.segments) {
        memory->segments_.push_back({nullptr, record.bytes});
        if ((record.flags & wire::kMapLent) == 0) continue;
        if (next == descriptors.size() || !is_whole_for_good(descriptors[next].get(), record)) {
            why = "what the node lends is no memory that can be mapped safely";
            return nullptr;
        }
        void* const address = ::mmap(nullptr, record.bytes, PROT_READ, MAP_SHARED, descriptors[next++].get(),
                                     static_cast<off_t>(record.offset));
        if (address == MAP_FAILED) {
            why = "mapping " + std::to_string(record.bytes) + " bytes of the node: " + errno_text(errno);
            return nullptr;
        }
        memory->segments_.back().data = static_cast<const std::uint8_t*>(address);
        memory->bytes_ += record.bytes;
        ::madvise(address, record.bytes, MADV_DONTFORK);
        ::madvise(address, record.bytes, MADV_DONTDUMP);
    }
    if (memory->bytes_ > 0) return memory;
    why = "the node lends no memory that can be mapped";
    return nullptr;
}

const std::uint8_t* SharedMemory::at(std::size_t segment, std::uint64_t offset, std::uint64_t size) const {
    if (segment >= segments_.size() || segments_[segment].data == nullptr) return nullptr;
    const auto bytes = segments_[segment].bytes;
    if (offset > bytes || size > bytes - offset) return nullptr;
    return segments_[segment].data + offset;
}

bool SharedMemory::is_of_this_process() const { return process_ == ::getpid(); }

}  // namespace mooncake::net
