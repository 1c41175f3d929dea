// What a node tells a master that counts other replicas on a segment than the node does: which ones it holds.
#include <algorithm>

#include "node/control_state.h"

namespace mooncake::node {

namespace {

// A chunk: few for a large node, and small enough that retires and reports get in between.
constexpr std::size_t kHoldingsChunk = 16'384;

}  // namespace

// Listed and sent in one go on the loop that carries out retires: what is named here and retired afterwards
// is confirmed after this.
void Control::State::next_holdings_chunk() {
    std::vector<wire::ReplicaId> replicas;
    while (replicas.size() < kHoldingsChunk && listing_.part < Directory::kInventoryParts) {
        auto more = holdings_->with_directory([&](Directory& directory) {
            return directory.settled(listing_.segment, settled_id_, listing_.part);
        });
        std::sort(more.begin(), more.end());
        const auto first = std::upper_bound(more.begin(), more.end(), listing_.after);
        const auto room = static_cast<std::ptrdiff_t>(wire::kReplicaIdsMax - replicas.size());
        const bool fits = more.end() - first <= room;
        replicas.insert(replicas.end(), first, fits ? more.end() : first + room);
        listing_.after = fits ? 0 : replicas.back();
        listing_.part += fits ? 1 : 0;
    }
    listing_.is_last_sent = listing_.part == Directory::kInventoryParts;
    ask(wire::Verb::kHoldings, [&](wire::Writer& writer) {
        wire::encode_holdings(prefix(false), listing_.comparison,
                              listing_.is_last_sent ? std::uint32_t{wire::kHoldingsLast} : 0, replicas,
                              writer);
    });
}

void Control::State::on_holdings_taken() {
    if (listing_.is_last_sent) {
        change_status([](ControlStatus& status) { ++status.comparisons_total; });
        listing_ = {};
    }
    go_on();
}

}  // namespace mooncake::node
