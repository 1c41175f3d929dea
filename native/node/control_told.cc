// What a mounted node tells its master of what it holds: reports, its inventory where that one takes over,
// what a later master must not take in, and its ids where the master counts otherwise. When each is asked:
// control_state.cc.
#include <algorithm>
#include <utility>

#include "node/control_state.h"

namespace mooncake::node {

namespace {

using wire::Verb;

// A chunk of an inventory, in bytes of headers, and of a list of ids: big enough to be few, small enough that
// retires and reports get in between.
constexpr std::size_t kInventoryChunkBytes = 1u << 20;
constexpr std::size_t kHoldingsChunk = 16'384;
// Described under one hold of the directory lock.
constexpr std::size_t kItemsALock = 1'000;

}  // namespace

// ---- reports

void Control::State::report() {
    if (pending_.request_id != 0) {
        report_due_ = true;
        return;
    }
    report_due_ = false;
    std::vector<wire::SegmentReport> segments;
    std::vector<wire::ReplicaId> freed;
    holdings_->with_directory([&](Directory& directory) {
        for (std::size_t i = 0; i < holdings_->segment_count(); ++i) {
            segments.push_back(directory.report(static_cast<SegmentIndex>(i), settled_id_));
        }
        freed = directory.pending_freed();
    });
    ask(Verb::kReport, [&](wire::Writer& writer) {
        wire::encode_report(prefix(false), last_command_id_, settled_id_, segments, freed, writer);
    });
    pending_.freed_count = freed.size();
}

void Control::State::on_reported(wire::Bytes body) {
    const Pending asked = std::exchange(pending_, {});
    const auto reply = wire::parse_report_reply(body);
    if (!reply) return fail("the answer to a report does not parse");
    holdings_->heard_master(asked.asked_ms, session_.client_ttl_ms);
    settled_id_ = std::max(settled_id_, reply->settled_id);
    if (reply->tombstones_generation != tombstones_generation_) tombstones_due_ = true;
    if (reply->comparison != 0 && reply->comparison != listing_.comparison) {
        listing_ = {reply->comparison, reply->compared_segment, 0, 0, false};
    }
    const bool more = holdings_->with_directory([&](Directory& directory) {
        directory.acknowledge_freed(asked.freed_count);
        return directory.pending_freed_count() > 0;
    });
    change_status([](ControlStatus& status) { ++status.reports_total; });
    if (!reply->unknown_segments.empty() && phase_ == Phase::kMounted) {
        return start_over("the master has expelled this node's segments");
    }
    if (more) ranges_freed();
    go_on();
}

// ---- the inventory

void Control::State::next_inventory_chunk() {
    std::vector<wire::InventoryItem> items;
    wire::Buffer headers;
    wire::Writer header_writer(headers);
    InventoryProgress& at = inventory_;
    const auto is_listed = [&] { return at.described_count == at.listed.size(); };
    const bool is_first = at.part == 0;
    while (headers.size() < kInventoryChunkBytes && items.size() + kItemsALock <= wire::kReplicaIdsMax &&
           !(is_listed() && at.part == Directory::kInventoryParts)) {
        holdings_->with_directory([&](Directory& directory) {
            if (is_listed()) {
                at.listed = directory.take_inventory(at.part++);
                at.described_count = 0;
            }
            const std::size_t end = std::min(at.listed.size(), at.described_count + kItemsALock);
            for (; at.described_count < end && headers.size() < kInventoryChunkBytes; ++at.described_count) {
                directory.describe(at.listed[at.described_count], items, header_writer);
            }
        });
    }
    for (const auto& item : items) at.totals.add(item.replica);
    at.is_last_sent = is_listed() && at.part == Directory::kInventoryParts;
    const std::uint32_t flags = (is_first ? std::uint32_t{wire::kInventoryFirst} : 0) |
                                (at.is_last_sent ? std::uint32_t{wire::kInventoryLast} : 0);
    ask(Verb::kInventory, [&](wire::Writer& writer) {
        wire::encode_inventory(prefix(false), flags, at.totals, items, headers, writer);
    });
}

void Control::State::on_inventory_taken() {
    if (inventory_.is_last_sent) {
        inventory_due_ = false;
        change_status([&](ControlStatus& status) {
            ++status.inventories_total;
            status.reported_replicas_total += inventory_.totals.count;
        });
        inventory_ = {};
    }
    go_on();
}

// ---- tombstones

void Control::State::ask_tombstones() {
    tombstones_due_ = false;
    const bool is_news = tombstones_master_ != master_;
    ask(Verb::kTombstones, [&](wire::Writer& writer) {
        wire::encode_tombstones_request(prefix(false), is_news ? wire::Bytes(tombstones_) : wire::Bytes(),
                                        writer);
    });
}

void Control::State::on_tombstones(wire::Bytes body) {
    const auto reply = wire::parse_tombstones_reply(body);
    if (!reply) return fail("the answer to tombstones does not parse");
    tombstones_.assign(reply->kept.begin(), reply->kept.end());
    tombstones_master_ = master_;
    tombstones_generation_ = reply->generation;
    go_on();
}

// ---- comparing

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
    ask(Verb::kHoldings, [&](wire::Writer& writer) {
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
