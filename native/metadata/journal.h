// What happened lately, bounded: to copies of values, and to sessions, segments and reigns. For operators
// (verb inspect) and for the story of a failed test. Nothing decides by it.
//
// Three rings, so that a wave of evictions does not push out why a node went, nor a client that comes and
// goes all night.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/ids.h"
#include "wire/inspect.h"

namespace mooncake::metadata {

// The newest `max` of what was added. Positions count from the first event ever; those from first() on, below
// end(), are here.
template <class Event>
class Ring {
  public:
    explicit Ring(std::size_t max) : max_(max) {}

    void add(Event event) {
        if (max_ == 0) {
            ++end_;
        } else if (events_.size() < max_) {
            events_.push_back(std::move(event));
            ++end_;
        } else {
            events_[end_++ % max_] = std::move(event);
        }
    }
    std::uint64_t first() const { return end_ - events_.size(); }
    std::uint64_t end() const { return end_; }
    const Event& at(std::uint64_t position) const { return events_[position % max_]; }

  private:
    const std::size_t max_;
    std::vector<Event> events_;
    std::uint64_t end_ = 0;
};

// Something that happened to one copy of a value.
struct CopyEvent {
    std::uint64_t at_ms = 0;
    wire::ReplicaId replica = 0;
    wire::SegmentId segment = 0;
    std::uint64_t subject : 48;  // subject_of(hash of its key)
    std::uint64_t kind : 8;      // wire::EventKind

    static constexpr std::uint64_t kSubjectMask = (std::uint64_t{1} << 48) - 1;
    static std::uint64_t subject_of(std::uint64_t hash) { return hash >> 16; }
};
static_assert(sizeof(CopyEvent) == 32);

// Something that happened to a session, a segment or the reign.
struct PoolEvent {
    std::uint64_t at_ms = 0;
    wire::EventKind kind = wire::EventKind::kSessionOpened;
    wire::EventReason reason = wire::EventReason::kNone;
    wire::SessionId session = 0;
    wire::SegmentId segment = 0;
    std::uint64_t number = 0;  // what the kind says of it
    std::string name;          // of the segment, or of the session where there is none
    std::string host_id;
    std::uint64_t order = 0;  // over both rings of pool events; Journal sets it
};

class Journal {
  public:
    // Of pool events each ring holds at most so many, however many copies' events there may be.
    static constexpr std::size_t kPoolEventsMax = 4'096;

    explicit Journal(std::size_t events_max)
        : events_max_(events_max),
          copies_(events_max),
          comings_(std::min(events_max, kPoolEventsMax)),
          incidents_(std::min(events_max, kPoolEventsMax)) {}

    void add(const CopyEvent& event) { copies_.add(event); }
    void add(PoolEvent event) {
        event.order = ++pool_events_;
        (is_everyday(event) ? comings_ : incidents_).add(std::move(event));
    }

    const Ring<CopyEvent>& copies() const { return copies_; }

    // Calls visit(event) from the newest pool event on, until it answers false.
    template <class Visit>
    void visit_pool(Visit&& visit) const {
        std::uint64_t coming = comings_.end();
        std::uint64_t incident = incidents_.end();
        for (;;) {
            const bool has_coming = coming > comings_.first();
            const bool has_incident = incident > incidents_.first();
            if (!has_coming && !has_incident) return;
            const bool is_coming = has_coming && (!has_incident || comings_.at(coming - 1).order >
                                                                       incidents_.at(incident - 1).order);
            if (!visit(is_coming ? comings_.at(--coming) : incidents_.at(--incident))) return;
        }
    }

    std::size_t events_max() const { return events_max_; }
    std::uint64_t kept() const { return kept(copies_) + kept(comings_) + kept(incidents_); }
    std::uint64_t dropped_copy_events() const { return copies_.first(); }
    std::uint64_t dropped_pool_events() const { return comings_.first() + incidents_.first(); }

  private:
    // Sessions that come, and go as they should.
    static bool is_everyday(const PoolEvent& event) {
        return event.kind == wire::EventKind::kSessionOpened ||
               event.kind == wire::EventKind::kConnectionLost ||
               (event.kind == wire::EventKind::kSessionEnded && event.reason == wire::EventReason::kAsked);
    }
    template <class Event>
    static std::uint64_t kept(const Ring<Event>& ring) {
        return ring.end() - ring.first();
    }

    const std::size_t events_max_;
    Ring<CopyEvent> copies_;
    Ring<PoolEvent> comings_;
    Ring<PoolEvent> incidents_;
    std::uint64_t pool_events_ = 0;
};

}  // namespace mooncake::metadata
