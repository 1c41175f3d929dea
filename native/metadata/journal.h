// The last events in memory, bounded, so that a failed test can tell the story of a key. Nothing decides by
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metadata/replica_status.h"

namespace mooncake::metadata {

class Journal {
  public:
    static constexpr std::size_t kEventsMax = 4096;

    struct Event {
        std::uint64_t now_ms = 0;
        std::uint64_t subject = 0;  // the hash of a key or of a segment's name
        std::uint64_t id = 0;       // replica_id, put_id or segment id
        std::uint64_t segment = 0;
        ReplicaEvent event = ReplicaEvent::kPlaced;
        bool is_segment = false;  // kPlaced: mounted, kExpelled: left the pool
    };

    void add(const Event& event) {
        if (events_.size() < kEventsMax) {
            events_.push_back(event);
        } else {
            events_[next_] = event;
        }
        next_ = (next_ + 1) % kEventsMax;
    }
    // Oldest first, one line each.
    std::string story(const std::vector<std::uint64_t>& subjects) const;

  private:
    std::vector<Event> events_;
    std::size_t next_ = 0;  // once full: where the oldest is
};

}  // namespace mooncake::metadata
