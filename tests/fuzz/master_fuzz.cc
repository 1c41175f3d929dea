// The master just below its sockets: several peers' frames, well-formed, damaged or arbitrary, into the real
// lane handler, driver and state machine, under a clock that the input moves. After every event the
// invariants hold; each request is answered once at most, and at the end, with everybody gone, nothing is
// left.
//
// An input is a list of events: u8 what, then what it needs.
#include <array>
#include <map>
#include <set>

#include "fake_connection.h"
#include "master/lane_server.h"
#include "master_events.h"
#include "wire/control.h"
#include "wire/digest.h"
#include "wire/inspect.h"
#include "wire/lane.h"
#include "wire/tasks.h"
#include "wire/tombstones.h"
#include "wire/value_header.h"

namespace {

using namespace mooncake;
using namespace fuzz::master_events;
using fuzz::Input;
using fuzz::packed;
using fuzz::Script;
using wire::Status;
using wire::Verb;

constexpr std::size_t kPeers = 5;
constexpr std::size_t kEventsMax = 300;
constexpr std::uint64_t kClockStepMaxMs = 3'600'000;

struct Peer {
    fuzz::FakePtr connection;
    std::uint64_t request_id = 1;
    wire::SessionId session = 0;
    std::uint64_t sequence = 0;
    std::map<std::uint64_t, wire::Buffer> asked;  // by request_id: the frame, while it is not answered
    wire::Buffer last;                            // the latest one
    bool last_reuses_sequence = false;
    bool was_raw = false;  // some of its bytes may be half a frame, which takes the next ones for its body
    std::deque<std::pair<wire::GrantRecord, std::vector<wire::ReplicaPlace>>> grants;
    std::deque<wire::Retire> retires;  // commands not answered yet
    std::deque<wire::ReplicaId> copies;
    std::vector<wire::ReplicaId> unfreed;
    std::vector<wire::SegmentId> segments;
    wire::InventoryTotals inventory;
};

class World {
  public:
    World()
        : clock_(kClockStepMaxMs),
          driver_(
              std::make_shared<master::StateDriver>(small_limits(), parking(), 1, wire::Uuid{1}, 1, clock_)) {
        lane_.requests_max = 8;
        lane_.request_bytes_max = 64u << 10;
        clock_.advance(reading_ms_);
        driver_->set_probe([this](wire::SessionId node, const std::string&) { probes_.push_back(node); });
    }
    ~World() {
        for (auto& peer : peers_) disconnect(peer);
    }

    void play(Input input) {
        for (std::size_t i = 0; i < kEventsMax && !input.empty(); ++i) {
            event(input);
            driver_->check_invariants();
        }
        end();
    }

  private:
    static metadata::Options small_limits() {
        metadata::Options options;
        options.sessions_max = 6;
        options.segments_max = 5;
        options.max_keys = 24;
        options.keys_a_step_max = 3;
        options.replay_window = 8;
        options.replay_bytes_max = 2'048;
        options.journal_events = 16;
        return options;
    }
    master::DriverOptions parking() {
        master::DriverOptions options;
        options.steady_ms = [this] { return reading_ms_; };
        options.parked_calls_max = 4;
        options.parked_bytes_max = 4'096;
        options.repeats_a_call_max = 2;
        options.sessions_a_link_max = 2;
        return options;
    }

    void event(Input& input) {
        const std::size_t what = input.below(kEvents);
        Peer& peer = peers_[input.below(kPeers)];
        switch (what) {
            case kConnect:
                return connect(peer, input.flag() ? wire::Role::kNode : wire::Role::kClient, input.u8());
            case kOpenSession:
                return open_session(peer, input);
            case kMount:
                return mount(peer, input);
            case kPutStart:
                return put_start(peer, input);
            case kPutEnd:
                return put_end(peer, input);
            case kPutRevoke:
                return put_revoke(peer, input);
            case kKeys:
                return keys_verb(peer, input);
            case kReport:
                return report(peer, input);
            case kTombstones:
                return tombstones(peer, input);
            case kInventory:
                return inventory(peer, input);
            case kAsk:
                return ask(peer, kAskVerbs[input.below(kAskVerbs.size())], input);
            case kConfirm:
                return confirm(peer, input);
            case kCopied:
                return copied(peer, input);
            case kTime:
                return pass(std::uint64_t{input.u16()} * (input.flag() ? 20 : 1));
            case kRepeat:
                return repeat(peer, peers_[input.below(kPeers)]);
            case kRaw:
                was_raw_ = peer.was_raw = true;
                return feed(peer, input.chunk());
            case kRawBody: {
                was_raw_ = true;
                const auto verb = static_cast<Verb>(input.u8());
                const std::uint8_t flags = input.u8() & 3;
                return feed(peer, fuzz::frame(verb, ++peer.request_id, input.chunk(), 0, flags));
            }
            default:
                return disconnect(peer);
        }
    }

    // ---- peers

    void connect(Peer& peer, wire::Role role, std::uint8_t process) {
        disconnect(peer);
        peer.connection = std::make_shared<fuzz::FakeConnection>(
            nullptr, [this, &peer](const net::Outgoing& frame) { on_sent(peer, frame); });
        peer.connection->set_handler(master::lane_connection(driver_, lane_, counters_));
        feed(peer, fuzz::hello(role, process));
    }

    void disconnect(Peer& peer) {
        if (peer.connection) peer.connection->end();
        peer.connection.reset();
        peer.asked.clear();
        peer.retires.clear();
        peer.copies.clear();
        peer.was_raw = false;
    }

    void feed(Peer& peer, wire::Bytes bytes) {
        if (!peer.connection) return;
        peer.connection->feed(bytes);
        while (peer.connection->take_sent()) {
        }
        if (peer.connection->is_over()) disconnect(peer);
    }

    void send(Peer& peer, Verb verb, const wire::Buffer& body) {
        if (!peer.connection) return;
        peer.last = fuzz::frame(verb, ++peer.request_id, body);
        peer.last_reuses_sequence = std::exchange(reuses_sequence_, false);
        if (!peer.last_reuses_sequence) peer.asked[peer.request_id] = peer.last;
        feed(peer, wire::Buffer(peer.last));
    }

    void repeat(Peer& from, Peer& to) {
        if (from.last.empty() || !to.connection) return;
        wire::Buffer again = from.last;
        wire::Writer(again).patch(offsetof(wire::FrameHeader, request_id), ++to.request_id);
        if (!from.last_reuses_sequence) to.asked[to.request_id] = again;
        feed(to, again);
    }

    void on_sent(Peer& peer, const net::Outgoing& sent) {
        REQUIRE(sent.payload.empty());
        const auto header = wire::parse_frame_header(sent.head);
        REQUIRE(header && header->body_bytes + wire::kFrameHeaderBytes == sent.head.size());
        const wire::Bytes body = wire::Bytes(sent.head).subspan(wire::kFrameHeaderBytes);
        if (!header->is_reply()) {
            if (header->verb == Verb::kCopy) {
                const auto copy = wire::parse_copy(body);
                REQUIRE(copy && copy->target == header->request_id && copy->target != copy->source);
                peer.copies.push_back(copy->target);
                return;
            }
            REQUIRE(header->verb == Verb::kRetire);
            auto retire = wire::parse_retire(body);
            REQUIRE(retire && !retire->replicas.empty());
            peer.retires.push_back(std::move(*retire));
            return;
        }
        const auto asked = peer.asked.find(header->request_id);
        if (asked == peer.asked.end()) return;  // a raw frame's
        const wire::Buffer question = std::move(asked->second);
        peer.asked.erase(asked);
        REQUIRE(header->verb == wire::parse_frame_header(question)->verb);
        if (wire::ok(header->status)) {
            on_answer(peer, header->verb, wire::Bytes(question).subspan(wire::kFrameHeaderBytes), body);
        } else {
            wire::Reader reader(body);
            reader.text16(wire::kHelloBytesMax);
            REQUIRE(reader.finished());
        }
    }

    // An answer is what the client's parser takes, and one a key.
    void on_answer(Peer& peer, Verb verb, wire::Bytes question, wire::Bytes body) {
        switch (verb) {
            case Verb::kOpenSession: {
                const auto reply = wire::parse_open_session_reply(body);
                REQUIRE(reply && reply->session != 0);
                if (reply->session != peer.session) peer.sequence = 0;
                peer.session = reply->session;
                break;
            }
            case Verb::kMount: {
                const auto answers = wire::parse_mount_reply(body);
                REQUIRE(answers && answers->size() == wire::parse_mount(question)->segments.size());
                for (const auto& answer : *answers) {
                    if (wire::ok(answer.status)) peer.segments.push_back(answer.segment);
                }
                break;
            }
            case Verb::kPutStart: {
                const auto reply = wire::Places<wire::GrantRecord>::parse(body);
                REQUIRE(reply && reply->count == wire::parse_put_start(question)->keys.count());
                for (std::size_t i = 0, at = 0; i < reply->count; ++i) {
                    const auto record = reply->record(i);
                    REQUIRE(wire::ok(record.status) == (record.replica_count > 0));
                    std::vector<wire::ReplicaPlace> places;
                    for (; places.size() < record.replica_count; ++at) places.push_back(reply->place(at));
                    if (wire::ok(record.status)) peer.grants.emplace_back(record, places);
                }
                break;
            }
            case Verb::kLookup: {
                const auto reply = wire::Places<wire::LookupRecord>::parse(body);
                REQUIRE(reply && reply->count == wire::parse_keys_request(question)->keys.count());
                break;
            }
            case Verb::kExists:
            case Verb::kRemove:
            case Verb::kTouch:
            case Verb::kRelease: {
                const auto statuses = wire::parse_statuses(body);
                REQUIRE(statuses && statuses->size() == wire::parse_keys_request(question)->keys.count());
                break;
            }
            case Verb::kWhy: {
                const auto records = wire::parse_why_reply(body);
                REQUIRE(records && records->size() == wire::parse_keys_request(question)->keys.count());
                break;
            }
            case Verb::kPutEnd: {
                const auto statuses = wire::parse_statuses(body);
                REQUIRE(statuses && statuses->size() == wire::parse_put_end(question)->items.size());
                break;
            }
            case Verb::kDrain:
                REQUIRE(wire::parse_drain_reply(body).has_value());
                break;
            case Verb::kPutRevoke:
            case Verb::kUnmount:
                REQUIRE(wire::parse_statuses(body).has_value());
                break;
            case Verb::kMatchPrefix:
                REQUIRE(body.size() == sizeof(wire::MatchPrefixReply));
                break;
            case Verb::kList:
                REQUIRE(wire::parse_list_reply(body).has_value());
                break;
            case Verb::kSegments:
                REQUIRE(wire::parse_segments_reply(body).has_value());
                break;
            case Verb::kStats:
                REQUIRE(wire::parse_stats(body).has_value());
                break;
            case Verb::kInspect: {
                const auto asked = wire::parse_inspect(question);
                const auto reply = wire::parse_inspect_reply(body);
                REQUIRE(asked && reply && reply->key.has_value() == (asked->subject == wire::Subject::kKey));
                REQUIRE(reply->events.size() <=
                        (asked->limit == 0 ? wire::kEventsShownDefault : asked->limit));
                break;
            }
            case Verb::kCreateCopyTask:
            case Verb::kCreateMoveTask:
                REQUIRE(wire::parse_create_task_reply(body).has_value());
                break;
            case Verb::kQueryTask:
                REQUIRE(wire::parse_told_task(body).has_value());
                break;
            case Verb::kReport:
                REQUIRE(wire::parse_report_reply(body).has_value());
                break;
            case Verb::kTombstones:
                REQUIRE(wire::parse_tombstones_reply(body).has_value());
                break;
            default:
                REQUIRE(body.empty());
        }
    }

    // ---- requests as a client or node makes them, the choices the input's

    // Now and then another peer's session, or an old sequence.
    wire::Prefix prefix(Peer& peer, Input& input, bool changes) {
        const std::uint8_t odd = input.u8();
        wire::Prefix prefix;
        prefix.session = odd >= 0xF8 ? peers_[odd % kPeers].session : peer.session;
        prefix.flags = odd & 3;
        if (!changes) return prefix;
        prefix.sequence = (odd & 0xFC) == 0xF4 ? odd % 8 : ++peer.sequence;
        // An old sequence gets the old answer, whatever is asked: its counts say nothing. Peers may share a
        // session, and what raw bytes used nobody knows.
        const bool is_new = sequences_.insert({prefix.session, prefix.sequence}).second;
        reuses_sequence_ = !is_new || was_raw_;
        return prefix;
    }
    static std::vector<std::string_view> some_keys(Input& input, std::size_t count) {
        static constexpr std::string_view kText = "abcdefghijklmnop-a-key-that-is-longer-than-the-others";
        std::vector<std::string_view> keys;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint8_t which = input.u8();
            keys.push_back(kText.substr(which % 16, which < 0xE0 ? 1 + which / 64 : which % 40));
        }
        return keys;
    }
    static std::string_view task_segment(Input& input) {
        static constexpr std::array<std::string_view, 4> kNames = {"n0", "n1", "n2", "none"};
        return kNames[input.below(kNames.size())];
    }

    std::vector<wire::SegmentId> some_segments(Input& input) {
        std::vector<wire::SegmentId> ids;
        for (std::size_t left = input.below(3); left > 0; --left) {
            const auto& known = peers_[input.below(kPeers)].segments;
            ids.push_back(known.empty() ? input.u8() : known[input.u8() % known.size()]);
        }
        return ids;
    }

    void open_session(Peer& peer, Input& input) {
        static constexpr std::array<std::string_view, 3> kTenants = {"", "a", "b"};
        wire::OpenSession message;
        message.process = {input.u8(), 1};
        message.host_id = kTenants[input.below(3)];
        message.tenant = kTenants[input.below(3)];
        send(peer, Verb::kOpenSession, packed([&](auto& writer) { wire::encode(message, writer); }));
    }

    void mount(Peer& peer, Input& input) {
        static constexpr std::array<std::string_view, 4> kNames = {"n0", "n1", "n2", ""};
        static constexpr std::array<std::string_view, 3> kEndpoints = {"tcp://n0:1", "tcp://n1:1", "shm://"};
        std::vector<wire::SegmentDescription> segments(input.below(4));
        for (auto& segment : segments) {
            const std::uint8_t size = input.u8();
            segment.tier = size == 0xFF ? wire::Tier::kSsd : wire::Tier::kDram;
            segment.capacity_bytes =
                size >= 0xFE ? ~std::uint64_t{0} >> (size & 1) : std::uint64_t{size} * 512;
            segment.incarnation = {input.u8()};
            segment.name = kNames[input.below(kNames.size())];
            segment.host_id = kNames[input.below(kNames.size())];
            for (std::size_t left = input.below(3); left > 0; --left) {
                segment.endpoints.push_back(kEndpoints[input.below(kEndpoints.size())]);
            }
        }
        const std::uint8_t epoch = input.u8();
        wire::MountOrigin origin;
        origin.known_epoch = epoch >= 0xFC ? wire::kEpochMax - 2 + epoch % 4 : epoch / 64;
        origin.known_master = wire::Uuid{epoch};
        origin.flags = epoch & wire::kMountWithInventory;
        const auto head = prefix(peer, input, true);
        send(peer, Verb::kMount,
             packed([&](auto& writer) { wire::encode_mount(head, origin, segments, writer); }));
    }

    // Values of an earlier reign, or what a liar makes of them.
    void inventory(Peer& peer, Input& input) {
        const std::uint8_t flags = input.u8();
        if ((flags & wire::kInventoryFirst) != 0) peer.inventory = {};
        std::vector<wire::InventoryItem> items(input.below(5));
        wire::Buffer headers;
        wire::Writer header_writer(headers);
        for (auto& item : items) {
            const std::uint8_t id = input.u8();
            item.replica = id >= 0xF0 ? wire::make_id(2, id & 15) : 1 + id % 64;
            const auto& known =
                peers_[id % 64 < 60 ? static_cast<std::size_t>(&peer - peers_.data()) : 0].segments;
            item.segment = known.empty() ? 0 : known[input.u8() % known.size()];
            wire::ValueHeader header;
            header.put_id = 1 + input.u8() % 32;
            const std::uint8_t size = input.u8();
            header.size = size >= 0xFC ? wire::kValueBytesMax >> (size % 4 * 8) : std::uint64_t{size} * 97;
            header.flags = input.u8();
            header.ttl_ms = input.flag() ? input.u16() : 0;
            header.soft_pin_ms = input.flag() ? input.u16() : 0;
            header.key = some_keys(input, 1).front();
            header.tenant = header.flags >= 0x80 ? "a" : "";
            const std::size_t start = headers.size();
            wire::encode(header, header_writer);
            item.header_bytes = static_cast<std::uint32_t>(headers.size() - start);
            peer.inventory.add(item.replica);
        }
        if ((flags & 0xF0) == 0xF0) ++peer.inventory.count;
        const auto head = prefix(peer, input, false);
        send(peer, Verb::kInventory, packed([&](auto& writer) {
                 wire::encode_inventory(head, flags & 3, peer.inventory, items, headers, writer);
             }));
    }

    // Replicas and keys as inventories and puts name them, so that some of what is told was taken in.
    void tombstones(Peer& peer, Input& input) {
        wire::Tombstones kept;
        const std::uint8_t what = input.u8();
        kept.closed_epoch = what % 4;
        if ((what & 4) != 0) kept.expelled.push_back(wire::Uuid{input.u8()});
        if ((what & 8) != 0) kept.floors.push_back({wire::Uuid{input.u8()}, 1 + input.u8() % 64U});
        for (std::size_t left = input.below(6); left > 0; --left)
            kept.replicas.push_back(1 + input.u8() % 64U);
        for (const auto key : some_keys(input, input.below(3))) {
            kept.keys.push_back({wire::key_digest("", key), 1 + input.u8() % 32U});
        }
        wire::Buffer packed_kept;
        wire::Writer writer(packed_kept);
        if ((what & 16) == 0) wire::encode(kept, writer);
        const auto head = prefix(peer, input, false);
        send(peer, Verb::kTombstones,
             packed([&](auto& body) { wire::encode_tombstones_request(head, packed_kept, body); }));
    }

    void put_start(Peer& peer, Input& input) {
        const auto keys = some_keys(input, input.below(8));
        std::vector<std::uint64_t> sizes;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const std::uint8_t size = input.u8();
            sizes.push_back(size >= 0xFC ? ~std::uint64_t{0} >> (size % 4 * 8) : std::uint64_t{size} * 97);
        }
        wire::PutOptions options;
        options.replica_count = static_cast<std::uint8_t>(input.u8() % 10);
        options.flags = input.u8();
        options.ttl_ms = input.flag() ? input.u16() : 0;
        options.soft_pin_ms = input.flag() ? input.u16() : 0;
        std::vector<std::string_view> preferred;
        if (input.flag()) preferred = {"n1"};
        const auto avoid = some_segments(input);
        const auto head = prefix(peer, input, true);
        send(peer, Verb::kPutStart, packed([&](auto& writer) {
                 wire::encode_put_start(head, avoid, options, preferred, keys, sizes, sizes, writer);
             }));
    }

    void put_end(Peer& peer, Input& input) {
        Peer& granted = input.u8() >= 0xF0 ? peers_[input.below(kPeers)] : peer;
        const std::size_t count = input.below(5);
        const bool again = input.u8() >= 0xF0;
        std::vector<wire::PutEndItem> items;
        std::vector<wire::ReplicaResult> results;
        for (std::size_t i = 0; i < count && i < granted.grants.size(); ++i) {
            const auto& [record, places] = granted.grants[i];
            items.push_back({record.put_id, static_cast<std::uint32_t>(places.size()), 0});
            for (const auto& place : places) {
                const std::uint8_t outcome = input.u8();
                const Status status = outcome < 0xC0   ? Status::kOk
                                      : outcome < 0xE0 ? Status::kSealed
                                                       : Status::kNoRange;
                results.push_back({place.replica, status, 0, 0});
            }
        }
        if (!again) granted.grants.erase(granted.grants.begin(), granted.grants.begin() + std::ssize(items));
        const auto head = prefix(peer, input, true);
        send(peer, Verb::kPutEnd,
             packed([&](auto& writer) { wire::encode_put_end(head, items, results, writer); }));
    }

    void put_revoke(Peer& peer, Input& input) {
        std::vector<wire::PutId> ids;
        for (std::size_t left = input.below(3); left > 0 && !peer.grants.empty(); --left) {
            ids.push_back(peer.grants.front().first.put_id);
            peer.grants.pop_front();
        }
        const auto head = prefix(peer, input, true);
        send(peer, Verb::kPutRevoke,
             packed([&](auto& writer) { wire::encode_put_revoke(head, ids, writer); }));
    }

    void keys_verb(Peer& peer, Input& input) {
        const Verb verb = kKeysVerbs[input.below(kKeysVerbs.size())];
        const auto keys = some_keys(input, input.below(12));
        const auto avoid = some_segments(input);
        const auto head = prefix(peer, input, verb == Verb::kRemove);
        send(peer, verb, packed([&](auto& writer) { wire::encode_keys_request(head, avoid, keys, writer); }));
    }

    void report(Peer& peer, Input& input) {
        std::vector<wire::SegmentReport> reports;
        for (const auto id : some_segments(input)) {
            reports.push_back({id, input.u64(), input.u8(), input.u8(), input.u64(), input.u8(), input.u8()});
        }
        const auto freed = std::exchange(peer.unfreed, {});
        const auto head = prefix(peer, input, false);
        send(peer, Verb::kReport,
             packed([&](auto& writer) { wire::encode_report(head, input.u8(), 0, reports, freed, writer); }));
    }

    void ask(Peer& peer, Verb verb, Input& input) {
        const bool creates = verb == Verb::kCreateCopyTask || verb == Verb::kCreateMoveTask;
        const bool changes = verb == Verb::kUnmount || verb == Verb::kCloseSession || creates;
        const bool names_segments = verb == Verb::kUnmount || verb == Verb::kSegments ||
                                    verb == Verb::kDrain || verb == Verb::kHeartbeat;
        const auto segments = names_segments ? some_segments(input) : std::vector<wire::SegmentId>{};
        const std::size_t subject = verb == Verb::kInspect ? input.below(3) : 0;
        const auto name = subject == 0   ? std::string_view{}
                          : subject == 1 ? some_keys(input, 1)[0]
                                         : std::string_view(input.flag() ? "n0" : "a");
        const auto head = prefix(peer, input, changes);
        send(peer, verb, packed([&](auto& writer) {
                 if (verb == Verb::kHeartbeat) {
                     const std::vector failures(input.flag() ? segments.size() : 0,
                                                static_cast<wire::PeerFailure>(input.u8() % 5));
                     wire::encode_heartbeat(head, segments, failures, writer);
                 } else if (verb == Verb::kInspect) {
                     wire::encode_inspect(head, segments, static_cast<wire::Subject>(subject), input.u8() % 8,
                                          name, writer);
                 } else if (creates) {
                     const std::array<std::string_view, 2> targets{task_segment(input), task_segment(input)};
                     const auto count = verb == Verb::kCreateMoveTask ? 1 : input.below(3);
                     const auto source =
                         verb == Verb::kCreateMoveTask ? task_segment(input) : std::string_view{};
                     wire::encode_create_task(head, some_keys(input, 1)[0], source,
                                              std::span(targets).first(count), writer);
                 } else if (verb == Verb::kQueryTask) {
                     wire::encode_query_task(head, wire::make_id(1, input.u8()), writer);
                 } else if (verb == Verb::kList) {
                     wire::encode_list(head, input.u8() % 4, input.u8() % 8, "", writer);
                 } else if (names_segments) {
                     wire::encode_segment_ids(head, segments, writer);
                 } else if (verb != Verb::kPing) {
                     wire::encode_prefix(head, {}, writer);
                 }
             }));
    }

    // The oldest command is carried out; some ranges are still being read, and freed with a later report.
    void confirm(Peer& peer, Input& input) {
        const std::uint8_t how = input.u8();
        if (peer.retires.empty()) return;
        const wire::Retire command = std::move(peer.retires.front());
        peer.retires.pop_front();
        std::vector<wire::ReplicaId> freed;
        for (std::size_t i = 0; i < command.replicas.size(); ++i) {
            (how >> (i % 7) & 1 ? peer.unfreed : freed).push_back(command.replicas[i]);
        }
        const Status status = how == 0xFF ? Status::kStaleEpoch : Status::kOk;
        const wire::Buffer body =
            packed([&](auto& writer) { wire::encode_retire_reply(command.command_id, freed, writer); });
        feed(peer, fuzz::frame(Verb::kRetire, command.command_id, body, 0, wire::kFlagReply, status));
    }

    // A copy is there, or is not; now and then somebody answers for another's.
    void copied(Peer& peer, Input& input) {
        const std::uint8_t how = input.u8();
        Peer& ordered = how >= 0xF0 ? peers_[how % kPeers] : peer;
        if (ordered.copies.empty()) return;
        const wire::ReplicaId target = ordered.copies.front();
        ordered.copies.pop_front();
        const wire::CopyReply reply{target, how % 4 == 0 ? Status::kGone : Status::kOk};
        const wire::Buffer body = packed([&](auto& writer) { wire::encode(reply, writer); });
        const Status status = how == 0xEF ? Status::kStaleEpoch : Status::kOk;
        feed(peer, fuzz::frame(Verb::kCopy, target, body, 0, wire::kFlagReply, status));
    }

    void pass(std::uint64_t ms) {
        clock_.advance(reading_ms_ += ms);
        for (const auto node : std::exchange(probes_, {})) {
            driver_->probe_ended(node, static_cast<metadata::ProbeResult>(ms % 3));
        }
        for (int slices = 0; !driver_->tick(); ++slices) REQUIRE(slices < 10'000);
        for (auto& peer : peers_) feed(peer, {});
    }

    // Everybody leaves: their sessions expire, and with them all they had.
    void end() {
        const metadata::Options options = small_limits();
        pass(options.client_ttl_ms / 2);
        // What was asked was answered by now, or is refused when the driver stops.
        for (auto& peer : peers_) {
            REQUIRE(peer.asked.empty() || peer.was_raw);
            disconnect(peer);
        }
        pass(options.session_grace_ms);
        pass(options.client_ttl_ms);
        driver_->check_invariants();
        static const std::set<std::string> kGone = {"key_count",
                                                    "unfinished_put_count",
                                                    "copy_count",
                                                    "allocated_bytes",
                                                    "retiring_replica_count",
                                                    "segment_count",
                                                    "expelled_segment_count",
                                                    "parked_calls_count",
                                                    "parked_bytes",
                                                    "active_session_count",
                                                    "connected_sessions_count",
                                                    "retire_queue_count",
                                                    "suspected_node_count",
                                                    "tenant_count"};
        std::size_t seen = 0;
        for (const auto& [name, value] : driver_->stats()) {
            if (!kGone.contains(name)) continue;
            ++seen;
            if (value != 0)
                std::fprintf(stderr, "%s is %llu\n", name.c_str(), static_cast<unsigned long long>(value));
            REQUIRE(value == 0);
        }
        REQUIRE(seen == kGone.size());
    }

    bool reuses_sequence_ = false;  // the request being made
    bool was_raw_ = false;
    std::set<std::pair<wire::SessionId, std::uint64_t>> sequences_;  // asked with
    std::uint64_t reading_ms_ = 1'000;
    master::BoundedClock clock_;
    std::shared_ptr<master::StateDriver> driver_;
    std::vector<wire::SessionId> probes_;  // that the master asked for, not ended yet
    master::LaneOptions lane_;
    master::LaneCounters counters_;
    std::array<Peer, kPeers> peers_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    World world;
    world.play(Input({data, size}));
    return 0;
}

std::vector<std::pair<std::string, wire::Buffer>> fuzz::seeds() {
    return fuzz::master_events::conversations();
}
