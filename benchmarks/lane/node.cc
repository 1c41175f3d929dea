#include "node.h"

#include <poll.h>

#include <string>

#include "wire/range_bytes.h"
#include "wire/value_header.h"

namespace mooncake::bench {

namespace {

constexpr std::uint64_t kReportNs = 1'000'000'000;
constexpr std::uint64_t kValueBytes = 64u << 10;
constexpr std::size_t kItemsAChunk = 4'096;

wire::SegmentId mount(Peer& peer, std::uint64_t bytes, const wire::MountOrigin& origin) {
    static std::atomic<int> counter{0};
    wire::SegmentDescription segment;
    const std::string name = "lane_load-" + std::to_string(++counter);
    segment.capacity_bytes = bytes;
    segment.incarnation = peer.process();
    segment.name = name;
    segment.host_id = "bench";
    segment.endpoints = {"tcp://127.0.0.1:1"};
    const auto answers = wire::parse_mount_reply(peer.ask(wire::Verb::kMount, [&](wire::Writer& writer) {
        wire::encode_mount(peer.prefix(), origin, {&segment, 1}, writer);
    }));
    if (!answers || answers->size() != 1 || !wire::ok(answers->front().status)) {
        fail("the master did not take a segment");
    }
    return answers->front().segment;
}

}  // namespace

Nodes::Nodes(const Target& target, std::size_t count, std::uint64_t segment_bytes) : nodes_(count) {
    for (auto& node : nodes_) {
        node.peer = std::make_unique<Peer>(target, wire::Role::kNode);
        node.segment = mount(*node.peer, segment_bytes, {});
    }
    thread_ = std::thread([this] { run(); });
}

Nodes::~Nodes() {
    stopping_ = true;
    thread_.join();
}

// Reports are spread over the second, as those of nodes that started at different times are.
void Nodes::run() {
    std::vector<pollfd> polled;
    for (const auto& node : nodes_) polled.push_back({node.peer->fd(), POLLIN, 0});
    std::size_t turn = 0;
    std::uint64_t due_ns = now_ns();
    while (!stopping_) {
        while (now_ns() >= due_ns) {
            report(nodes_[turn++ % nodes_.size()]);
            due_ns += kReportNs / nodes_.size();
        }
        const std::uint64_t now = now_ns();
        const int wait_ms = due_ns > now ? static_cast<int>((due_ns - now) / 1'000'000) : 0;
        if (::poll(polled.data(), polled.size(), std::min(wait_ms, 50)) <= 0) continue;
        for (std::size_t i = 0; i < polled.size(); ++i) {
            if (polled[i].revents == 0) continue;
            wire::Bytes body;
            const wire::FrameHeader header = nodes_[i].peer->receive(body);
            if (!header.is_reply()) answer(nodes_[i], header, body);
        }
    }
}

void Nodes::report(Node& node) {
    wire::SegmentReport segment;
    segment.segment = node.segment;
    node.peer->send(node.peer->frame(wire::Verb::kReport, [&](wire::Writer& writer) {
        wire::encode_report(node.peer->prefix(), node.last_command_id, 0, {&segment, 1}, {}, writer);
    }));
}

void Nodes::answer(Node& node, const wire::FrameHeader& header, wire::Bytes body) {
    if (header.verb != wire::Verb::kRetire) return;
    const auto retire = wire::parse_retire(body);
    if (!retire) fail("malformed retire");
    node.last_command_id = retire->command_id;
    wire::Buffer frame;
    const std::size_t start = wire::begin_frame(frame, wire::reply_header(header, wire::Status::kOk, 0));
    wire::Writer writer(frame);
    wire::encode_retire_reply(retire->command_id, retire->replicas, writer);
    wire::finish_frame(frame, start);
    node.peer->send(frame);
}

std::uint64_t tell_inventory(const Target& target, std::uint64_t count) {
    Peer peer(target, wire::Role::kNode);
    wire::MountOrigin origin;
    origin.known_epoch = 1;
    origin.known_master = peer.process();  // some master of long ago
    origin.flags = wire::kMountWithInventory;
    const std::uint64_t begun = now_ns();
    const wire::SegmentId segment = mount(peer, count * 2 * (kValueBytes + 64), origin);
    wire::InventoryTotals totals;
    for (std::uint64_t first = 0; first < count; first += kItemsAChunk) {
        std::vector<wire::InventoryItem> items;
        wire::Buffer headers;
        for (std::uint64_t i = first; i < std::min(count, first + kItemsAChunk); ++i) {
            const Key key(i);
            wire::ValueHeader header;
            header.put_id = wire::make_id(1, 2 * i + 1);
            header.size = kValueBytes;
            header.key = key.text();
            wire::InventoryItem item;
            item.replica = wire::make_id(1, 2 * i + 2);
            item.segment = segment;
            const std::size_t before = headers.size();
            wire::Writer writer(headers);
            wire::encode(header, writer);
            item.header_bytes = static_cast<std::uint32_t>(headers.size() - before);
            items.push_back(item);
            totals.add(item.replica);
        }
        std::uint32_t flags = 0;
        if (first == 0) flags |= wire::kInventoryFirst;
        if (first + kItemsAChunk >= count) flags |= wire::kInventoryLast;
        peer.ask(wire::Verb::kInventory, [&](wire::Writer& writer) {
            wire::encode_inventory(peer.prefix(), flags, totals, items, headers, writer);
        });
    }
    return now_ns() - begun;
}

}  // namespace mooncake::bench
