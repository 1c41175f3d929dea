#include "metadata/journal.h"

#include <algorithm>

namespace mooncake::metadata {

std::string Journal::story(const std::vector<std::uint64_t>& subjects) const {
    std::string text;
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const Event& event = events_[events_.size() < kEventsMax ? i : (next_ + i) % kEventsMax];
        if (std::find(subjects.begin(), subjects.end(), event.subject) == subjects.end()) continue;
        text.append(std::to_string(event.now_ms)).append(" ms: ");
        if (event.is_segment) {
            text.append(event.event == ReplicaEvent::kPlaced ? "mounted" : "expelled");
            text.append(" segment ").append(std::to_string(event.segment));
        } else {
            text.append(event_name(event.event)).append(" replica ").append(std::to_string(event.id));
            text.append(" on segment ").append(std::to_string(event.segment));
        }
        text.append("\n");
    }
    return text;
}

}  // namespace mooncake::metadata
