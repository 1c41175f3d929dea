// A command from inside: the parsed request, the position and the answer so far.
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "metadata/command.h"
#include "metadata/journal.h"
#include "wire/control.h"
#include "wire/lane.h"
#include "wire/tasks.h"
#include "wire/tombstones.h"

namespace mooncake::metadata {

inline constexpr std::uint32_t kAnsweredIndex = 0xFFFFFFFF;

// A put_start's key that waits for bytes which retirements will give back.
struct WaitingKey {
    std::uint32_t index = 0;
    std::string_view key;
    std::uint64_t promise = 0;  // of Promises; 0 = none
};

// One key's part of a lookup's or put_start's answer: its places lie in Command::State::places.
struct PlacesRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};

struct Command::State {
    wire::Verb verb = wire::Verb::kPing;
    wire::Buffer request;  // `message` views into it
    std::variant<std::monostate, wire::Request, wire::OpenSession, wire::Mount, wire::SegmentIds,
                 wire::KeysRequest, wire::PutStart, wire::PutEnd, wire::PutRevoke, wire::List, wire::Report,
                 wire::Inventory, wire::Inspect, wire::Heartbeat, wire::TombstonesRequest,
                 wire::SettledHoldings, wire::CreateTask, wire::QueryTask>
        message;
    wire::Prefix prefix;
    wire::AvoidList avoid;

    bool begun = false;  // counted, and its sequence taken
    bool done = false;
    wire::Status status = wire::Status::kOk;
    wire::Buffer body;
    std::vector<wire::ReplicaId> retired;
    bool ends_unseen = false;
    bool ended_lately = false;

    // Where a batch stands: keys before it are answered.
    std::optional<wire::KeyList::Cursor> cursor;
    std::size_t position = 0;         // of put_end's, put_revoke's, inventory's and holdings' items
    std::size_t result_position = 0;  // of put_end's results
    std::uint32_t failed_items = 0;

    // Answers that are put together at the end.
    std::vector<wire::Status> statuses;
    std::vector<wire::LookupRecord> found;
    std::vector<wire::GrantRecord> grants;
    std::vector<PlacesRange> ranges;  // one a grant
    std::vector<wire::ReplicaPlace> places;
    wire::MatchPrefixReply match;
    std::vector<wire::WhyRecord> whys;

    // Of inspect: how far the journal was walked (from its end), and what was found, newest first.
    std::optional<std::uint64_t> story_position;
    std::vector<CopyEvent> copy_events;
    std::vector<PoolEvent> pool_events;
    bool has_older_events = false;

    std::uint64_t list_cursor = 0;
    std::uint32_t listed_count = 0;

    std::vector<WaitingKey> waiting;
    std::size_t waiting_position = 0;  // of a retry under way
    bool all_tried = false;            // every key was tried once

    std::size_t key_count() const;
    void finish(wire::Status outcome, std::string_view why = {});
};

}  // namespace mooncake::metadata
