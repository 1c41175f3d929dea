// What the connections of a data server share: the holdings, counters, and how much each peer has in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "node/holdings.h"
#include "wire/ids.h"

namespace mooncake::node {

// One client process, however many connections it has. In flight: bytes of reads that were admitted and not
// yet handed to the kernel, and of writes that are being received.
class DataPeer {
  public:
    // False: `bytes` more would exceed the bound. A single request may, when nothing else is under way, or
    // it could never be served.
    bool admit(std::uint64_t bytes, std::uint64_t max) {
        std::uint64_t before = in_flight_bytes_.load(std::memory_order_relaxed);
        do {
            if (before > 0 && (before >= max || bytes > max - before)) return false;
        } while (!in_flight_bytes_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
        return true;
    }
    void finish(std::uint64_t bytes) { in_flight_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> in_flight_bytes_ = 0;
};

struct DataCounters {
    std::atomic<std::uint64_t> connections_total = 0;
    std::atomic<std::uint64_t> read_requests_total = 0;
    std::atomic<std::uint64_t> read_values_total = 0;
    std::atomic<std::uint64_t> read_bytes_total = 0;
    std::atomic<std::uint64_t> write_requests_total = 0;
    std::atomic<std::uint64_t> written_values_total = 0;
    std::atomic<std::uint64_t> written_bytes_total = 0;
    std::atomic<std::uint64_t> mappings_total = 0;
    std::atomic<std::uint64_t> open_requests_total = 0;
    std::atomic<std::uint64_t> opened_values_total = 0;
    std::atomic<std::uint64_t> busy_total = 0;
    std::atomic<std::uint64_t> malformed_total = 0;
    std::atomic<std::uint64_t> refused_hellos_total = 0;
};

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
    counter.fetch_add(by, std::memory_order_relaxed);
}

struct DataShared {
    std::shared_ptr<Holdings> holdings;
    std::string software;
    std::string tenant = "default";  // whose clients may map the memory
    std::uint64_t peer_bytes_max = 0;
    std::uint64_t view_bytes_max = 0;  // of values under references that one connection's client closes
    DataCounters counters;
    std::atomic<std::uint64_t> held_references = 0;  // of them, by all connections
    std::atomic<bool> is_stopping = false;

    std::shared_ptr<DataPeer> peer(const wire::Uuid& process) {
        const std::lock_guard lock(mutex_);
        auto& known = peers_[process];
        auto peer = known.lock();
        if (!peer) {
            std::erase_if(
                peers_, [&](const auto& entry) { return entry.first != process && entry.second.expired(); });
            peer = std::make_shared<DataPeer>();
            peers_[process] = peer;
        }
        return peer;
    }
    wire::Uuid incarnation() {
        const std::lock_guard lock(mutex_);
        return incarnation_;
    }
    void set_incarnation(const wire::Uuid& incarnation) {
        const std::lock_guard lock(mutex_);
        incarnation_ = incarnation;
    }

  private:
    std::mutex mutex_;  // guards what follows
    std::map<wire::Uuid, std::weak_ptr<DataPeer>> peers_;
    wire::Uuid incarnation_{};
};

}  // namespace mooncake::node
