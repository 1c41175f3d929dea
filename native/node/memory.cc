#include "node/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "net/signals_blocked.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace mooncake::node {

namespace {

constexpr std::uint64_t kHugepageBytes = 2u << 20;
// What one thread faults in before the ready mark moves: about 20 ms of work.
constexpr std::uint64_t kFaultStepBytes = 64u << 20;

std::string errno_text(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const std::string& name, std::uint64_t bytes, const std::string& what) {
    throw std::runtime_error("segment " + name + " of " + std::to_string(bytes) + " bytes: " + what);
}

std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    if (file >> value) return value;  // "max" is not a number: no limit
    return std::nullopt;
}

// The tightest limit on the way up from this process's own group, and the file that says so.
struct MemoryLimit {
    std::uint64_t bytes = ~std::uint64_t{0};
    std::string source;
};

void take_lower(MemoryLimit& limit, const std::string& path) {
    const auto value = number_in(path);
    // 0 cannot hold the process that reads it: told by groups that only carry processes along.
    if (!value || *value == 0 || *value >= limit.bytes) return;
    limit = {*value, path};
}

MemoryLimit cgroup_limit() {
    MemoryLimit limit;
    std::ifstream groups("/proc/self/cgroup");
    std::string line;
    while (std::getline(groups, line)) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool unified = controllers.empty();
        if (!unified && controllers.find("memory") == std::string::npos) continue;
        const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        const std::string file = unified ? "/memory.max" : "/memory.limit_in_bytes";
        std::string group = line.substr(second + 1);
        while (!group.empty()) {
            if (group != "/") take_lower(limit, root + group + file);
            group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
        }
        take_lower(limit, root + file);
    }
    return limit;
}

}  // namespace

MemorySegment::MemorySegment(const std::string& name, std::uint64_t bytes, const MemoryOptions& options)
    : bytes_(bytes) {
    if (bytes == 0) fail(name, bytes, "the size must be above zero");
    if (options.hugepages && bytes % kHugepageBytes != 0) {
        fail(name, bytes, "with hugepages the size must be a multiple of 2 MiB");
    }
    const unsigned huge = options.hugepages ? MFD_HUGETLB | MFD_HUGE_2MB : 0U;
    fd_ = ::memfd_create(("mooncake-" + name).substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);
    if (fd_ < 0) fail(name, bytes, "memfd_create: " + errno_text(errno));
    const auto give_up = [&](const std::string& call) {
        const int error = errno;
        ::close(fd_);
        std::string what = call + ": " + errno_text(error);
        if (options.hugepages) what += " (hugepages is set: are there enough in vm.nr_hugepages?)";
        fail(name, bytes, what);
    };
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) give_up("ftruncate");
    if (::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) give_up("fcntl(F_ADD_SEALS)");
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) give_up("mmap");
    data_ = static_cast<std::uint8_t*>(address);
    // From here on nobody, not even this user, can open it for writing through /proc.
    ::fchmod(fd_, 0400);
    is_lendable_ = true;
    ::madvise(address, bytes, MADV_DONTFORK);
    ::madvise(address, bytes, MADV_DONTDUMP);
}

MemorySegment::MemorySegment(const MemoryFile& file, std::uint64_t bytes)
    : bytes_(bytes), offset_(file.offset) {
    const std::string name = file.path + " from " + std::to_string(file.offset);
    if (bytes == 0) fail(name, bytes, "the size must be above zero");
    fd_ = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) fail(name, bytes, "open: " + errno_text(errno));
    const auto give_up = [&](const std::string& what) {
        ::close(fd_);
        fail(name, bytes, what);
    };
    struct stat file_status{};
    struct statfs system{};
    if (::fstat(fd_, &file_status) != 0 || ::fstatfs(fd_, &system) != 0)
        give_up("stat: " + errno_text(errno));
    const bool is_memory = system.f_type == TMPFS_MAGIC || system.f_type == HUGETLBFS_MAGIC;
    if (!S_ISREG(file_status.st_mode) || !is_memory) give_up("it is no file in memory (tmpfs, hugetlbfs)");
    const auto page = static_cast<std::uint64_t>(
        std::max<long>(system.f_type == HUGETLBFS_MAGIC ? system.f_bsize : 0, ::sysconf(_SC_PAGESIZE)));
    const auto length = static_cast<std::uint64_t>(file_status.st_size);
    if (file.offset % page != 0) give_up("the offset is no multiple of " + std::to_string(page));
    if (file.offset > length || bytes > length - file.offset) {
        give_up("the file has only " + std::to_string(length) + " bytes");
    }
    // A node that died has given it back: the lock goes with the descriptor.
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(file.offset);
    lock.l_len = static_cast<off_t>(bytes);
    if (::fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
        give_up(errno == EAGAIN || errno == EACCES ? "another node lends some of it already"
                                                   : "fcntl(F_OFD_SETLK): " + errno_text(errno));
    }
    // Only a memfd that was made for it can be sealed.
    is_lendable_ = ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    void* address =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(file.offset));
    if (address == MAP_FAILED) give_up("mmap: " + errno_text(errno));
    data_ = static_cast<std::uint8_t*>(address);
    ::madvise(address, bytes, MADV_DONTFORK);
    ::madvise(address, bytes, MADV_DONTDUMP);
}

MemorySegment::~MemorySegment() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    if (fd_ >= 0) ::close(fd_);
}

net::FileDescriptor MemorySegment::open_to_read() const {
    if (!is_lendable_) return {};
    return net::FileDescriptor(
        ::open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDONLY | O_CLOEXEC));
}

bool MemorySegment::fault_in(std::uint64_t offset, std::uint64_t length, std::string& why) const {
    // Populating never changes what a page holds, so a write under way is not disturbed.
    if (::madvise(data_ + offset, length, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) {
        why = errno_text(errno);
        return false;
    }
    // Kernels before 5.14: read a byte of each page, which makes a shared page resident too.
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    for (std::uint64_t at = offset; at < offset + length; at += page) {
        static_cast<void>(*const_cast<const volatile std::uint8_t*>(data_ + at));
    }
    return true;
}

MemoryFaulter::MemoryFaulter(std::vector<const MemorySegment*> segments, std::size_t threads,
                             std::function<void(std::size_t, std::uint64_t)> ready,
                             std::function<void(std::string)> failed)
    : segments_(std::move(segments)), ready_(std::move(ready)), failed_(std::move(failed)) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
        const std::uint64_t bytes = segments_[i]->bytes();
        for (std::uint64_t offset = 0; offset < bytes; offset += kFaultStepBytes) {
            steps_.push_back({i, offset, std::min(kFaultStepBytes, bytes - offset)});
        }
    }
    finished_.resize(steps_.size());
    const net::SignalsBlocked blocked;
    const std::size_t count = std::min(std::max<std::size_t>(threads, 1), steps_.size());
    for (std::size_t i = 0; i < count; ++i) {
        threads_.emplace_back([this] {
            pthread_setname_np(pthread_self(), "mc-fault");
            run();
        });
    }
}

MemoryFaulter::~MemoryFaulter() { stop(); }

void MemoryFaulter::stop() {
    stopping_ = true;
    for (auto& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

void MemoryFaulter::run() {
    while (!stopping_) {
        const std::size_t index = next_step_++;
        if (index >= steps_.size()) return;
        const Step& step = steps_[index];
        std::string why;
        if (!segments_[step.segment]->fault_in(step.offset, step.length, why)) {
            if (!stopping_.exchange(true)) failed_("faulting memory in: " + why);
            return;
        }
        finish(index);
    }
}

// Steps end out of order; what is ready is the part before the first that has not.
void MemoryFaulter::finish(std::size_t step) {
    const std::lock_guard lock(finished_mutex_);
    finished_[step] = true;
    while (finished_prefix_ < steps_.size() && finished_[finished_prefix_]) {
        const Step& done = steps_[finished_prefix_++];
        ready_(done.segment, done.offset + done.length);
    }
}

void check_memory_limit(std::uint64_t bytes) {
    const MemoryLimit limit = cgroup_limit();
    if (bytes > limit.bytes) {
        throw std::runtime_error("segments of " + std::to_string(bytes) +
                                 " bytes in all do not fit into the container's memory limit of " +
                                 std::to_string(limit.bytes) + " bytes (" + limit.source +
                                 "): lend less (global_segment_size) or raise the limit");
    }
    struct sysinfo machine{};
    if (::sysinfo(&machine) != 0) return;
    const std::uint64_t memory = std::uint64_t{machine.totalram} * machine.mem_unit;
    if (bytes > memory) {
        throw std::runtime_error("segments of " + std::to_string(bytes) +
                                 " bytes in all do not fit into this machine's memory of " +
                                 std::to_string(memory) + " bytes: lend less (global_segment_size)");
    }
}

}  // namespace mooncake::node
