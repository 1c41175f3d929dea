// A node that is about to leave: nothing is placed on its segments any more, and the objects that lie nowhere
// else are moved to other nodes' free room, the hottest first, for as long as the node stays. The rest is
// lost with it.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

constexpr std::uint8_t kAttemptsMax = 2;
constexpr std::size_t kExaminedMax = 64;
// For so long the search for the hottest goes before the first move; of a large index moves begin with what
// was found by then.
constexpr std::uint64_t kSearchAloneMs = 500;

}  // namespace

bool Machine::drain(State& command) {
    const auto& request = std::get<wire::SegmentIds>(command.message);
    wire::DrainReply reply;
    for (const auto id : request.ids) {
        const SegmentIndex* index = segments_.find(id);
        if (index == nullptr || segments_.at(*index).owner != command.prefix.session) {
            command.finish(wire::Status::kSegmentNotFound,
                           "segment " + std::to_string(id) + " is none of this node's");
            return true;
        }
        Segment& segment = segments_.at(*index);
        if (!segment.is_draining) {
            ++counters_.drained_segments;
            note_segment(wire::EventKind::kSegmentDraining, wire::EventReason::kAsked, segment);
            segments_.drain(*index);
            is_handover_search_due_ = true;
        }
        reply.moved_count += segment.handed_over;
    }
    reply.left_count = handovers_.size();
    if (is_handover_search_due_ || is_handover_searching_) ++reply.left_count;
    for (const auto& copy : copies_.all()) reply.left_count += copy.moves && copy.task == 0;
    wire::Writer writer(command.body);
    wire::encode(reply, writer);
    command.finish(wire::Status::kOk);
    return true;
}

// Higher goes first: pinned, then what readers asked to keep, then the rest, each by recency.
std::uint64_t Machine::heat(const Object& object) const {
    std::uint64_t wish = object.has(kSoftPin) ? 1 : 0;
    if (object.kept_until_ms() > now_ms_) wish = 2;
    if (object.has(kHardPin)) wish = 3;
    return wish << 62 | (object.stamp & ((std::uint64_t{1} << 62) - 1));
}

// Every replica is on a segment that is about to leave; answers one of them.
std::optional<Placed> Machine::leaving_replica(const Object& object) const {
    std::optional<Placed> leaving;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        const Segment& segment = segments_.at(one.segment);
        if (segment.is_mounted() && !segment.is_draining) return std::nullopt;
        if (segment.is_mounted()) leaving = one;
    }
    return leaving;
}

void Machine::queue_handover(Ref ref, std::uint8_t attempts) {
    const Object& object = table_.object(ref);
    if (attempts >= kAttemptsMax || !object.is_visible() || !leaving_replica(object)) return;
    if (handovers_.size() >= 2 * std::size_t{options_.handover_keys_max}) keep_hottest();
    handovers_.push_back({ref, object.put_id, heat(object), attempts});
    std::push_heap(handovers_.begin(), handovers_.end());
}

// The colder half goes.
void Machine::keep_hottest() {
    const auto end = handovers_.begin() + static_cast<std::ptrdiff_t>(options_.handover_keys_max);
    std::nth_element(handovers_.begin(), end, handovers_.end(),
                     [](const Leaving& a, const Leaving& b) { return b < a; });
    handovers_.erase(end, handovers_.end());
    std::make_heap(handovers_.begin(), handovers_.end());
}

// A bounded step of the search for what is to be moved. True: none is under way.
bool Machine::search_leaving(std::size_t& budget) {
    if (segments_.draining_count() == 0) {
        handovers_.clear();
        handover_cursor_ = 0;
        is_handover_search_due_ = is_handover_searching_ = false;
        return true;
    }
    if (is_handover_search_due_ && !is_handover_searching_) {
        is_handover_search_due_ = false;
        is_handover_searching_ = true;
        handover_began_ms_ = now_ms_;
        handover_cursor_ = 0;
    }
    if (!is_handover_searching_) return true;
    scanned_.clear();
    handover_cursor_ =
        table_.scan(handover_cursor_, budget, kExaminedAKey * options_.keys_a_step_max, scanned_);
    budget -= std::min(budget, scanned_.size());
    for (const Ref ref : scanned_) {
        const Object& object = table_.object(ref);
        if (object.is_visible() && !object.has(kGuarded)) queue_handover(ref, 0);
    }
    is_handover_searching_ = handover_cursor_ != 0;
    if (!is_handover_searching_ && handovers_.size() > options_.handover_keys_max) keep_hottest();
    return !is_handover_searching_;
}

// True: nothing can be done now.
bool Machine::hand_over(Effects& effects) {
    if (is_handover_search_due_) return true;
    if (is_handover_searching_ && now_ms_ - handover_began_ms_ < kSearchAloneMs) return true;
    for (std::size_t examined = 0; !handovers_.empty() && examined < kExaminedMax; ++examined) {
        if (!may_copy_more()) return true;
        const Leaving next = handovers_.front();
        const auto take = [&] {
            std::pop_heap(handovers_.begin(), handovers_.end());
            handovers_.pop_back();
        };
        const auto is_current = [&] { return table_.object(next.ref).put_id == next.put_id; };
        std::optional<Placed> source;
        if (is_current() && freshen(next.ref, effects) && is_current() &&
            !table_.object(next.ref).has(kGuarded)) {
            source = leaving_replica(table_.object(next.ref));
        }
        if (source) {
            if (is_busy_copying(segments_.at(source->segment).owner)) return true;
            // Room that nobody else has to give up for it.
            const CopyPlace place = choose_copy_target(table_.object(next.ref), source->segment,
                                                       options_.eviction_high_watermark_ratio);
            if (!place.found && place.may_come) return true;
            take();
            if (place.found) start_copy(next.ref, *source, place.segment, {true, next.attempts, 0}, effects);
        } else {
            take();
        }
    }
    return handovers_.empty();
}

}  // namespace mooncake::metadata
