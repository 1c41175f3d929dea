// The client's operations against a master and nodes that answer anything: well-formed, damaged, late or not
// at all. Whatever comes, an operation asks with frames that parse, receives only into the room it was given,
// takes no value whose bytes do not match, calls nothing stored that was not committed, and is over at its
// deadline.
//
// An input: u8 which operation, its options, then events: u8 what, then what it needs.
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "client/core/get_batch.h"
#include "client/core/key_batches.h"
#include "client/core/put_batch.h"
#include "client/core/read_assembly.h"
#include "fuzz.h"
#include "wire/data.h"
#include "wire/lane.h"
#include "wire/value_header.h"

namespace {

using namespace mooncake;
using namespace mooncake::client;
using fuzz::Input;
using fuzz::packed;
using fuzz::Script;
using wire::Status;
using wire::Verb;

constexpr std::size_t kEventsMax = 400;
constexpr std::size_t kKeysMax = 6;
constexpr std::uint64_t kTimeoutMs = 20'000;

enum Which : std::uint8_t { kGet, kOpenThenRead, kPut, kKeys, kPrefix, kOperations };
enum Event : std::uint8_t {
    kAnswer,
    kRefuse,
    kRawAnswer,
    kLaneLost,
    kNodeAnswers,
    kNodeFails,
    kWait,
    kEvents
};

constexpr std::array kStatuses = {Status::kOk,          Status::kOk,         Status::kOk,
                                  Status::kNotReady,    Status::kBusy,       Status::kGone,
                                  Status::kUnreachable, Status::kSealed,     Status::kNoRange,
                                  Status::kStaleGrant,  Status::kStaleEpoch, Status::kObjectNotFound,
                                  Status::kNoSpace,     Status::kRebuilding, Status::kObjectAlreadyExists,
                                  Status::kMalformed,   Status::kDeadline,   Status::kSessionUnknown,
                                  Status::kStaleRequest};
constexpr std::array kFailures = {Failure::kDial,     Failure::kRefused, Failure::kBroken,
                                  Failure::kDeadline, Failure::kStalled, Failure::kMalformed};

Status some_status(Input& input) {
    const std::uint8_t which = input.u8();
    return which < 0xF8 ? kStatuses[which % kStatuses.size()] : static_cast<Status>(input.u16());
}

wire::Bytes body_of(const wire::Buffer& frame) {
    const auto header = wire::parse_frame_header(frame);
    REQUIRE(header && frame.size() == wire::kFrameHeaderBytes + header->body_bytes);
    return wire::Bytes(frame).subspan(wire::kFrameHeaderBytes);
}

class World {
  public:
    explicit World(Input input) : input_(input), cluster_("t", "here", 1) {
        static constexpr std::array<std::uint64_t, 6> kSizes = {0, 1, 100, 5'000, 3u << 20, 40u << 20};
        open_session();
        which_ = static_cast<Which>(input_.below(kOperations));
        const std::uint8_t odd = input_.u8();
        const std::size_t count = input_.below(kKeysMax + 1);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint8_t key = input_.u8();
            keys_.push_back(std::string_view("abcdefgh").substr(key % 8, key < 0xF0 ? 1 : 0));
            room_.push_back(kSizes[key / 8 % kSizes.size()]);
        }
        checksums_ = (odd & 1) == 0;
        deadline_ms_ = now_ms_ + kTimeoutMs;
        if (which_ == kGet || which_ == kOpenThenRead) {
            get_ = std::make_unique<GetBatch>(cluster_, deadline_ms_, keys_,
                                              GetBatch::Options{checksums_, (odd & 2) != 0});
            if (which_ == kGet) get_->set_capacities(room_);
            operation_ = get_.get();
        } else if (which_ == kPut) {
            for (std::size_t i = 0; i < count; ++i) items_.push_back({keys_[i], room_[i], 0, 7, "float16"});
            PutBatch::Options options;
            options.checksums = checksums_;
            options.placement.replica_count = static_cast<std::uint8_t>(1 + odd / 16 % 4);
            options.placement.flags = odd & wire::kPutUpsert;
            put_ = std::make_unique<PutBatch>(cluster_, deadline_ms_, items_, options);
            operation_ = put_.get();
        } else if (which_ == kKeys) {
            static constexpr std::array kVerbs = {Verb::kExists, Verb::kRemove, Verb::kTouch};
            batch_ =
                std::make_unique<KeyBatch>(cluster_, deadline_ms_, kVerbs[odd % kVerbs.size()], 0, keys_);
            operation_ = batch_.get();
        } else {
            prefix_ = std::make_unique<MatchPrefix>(cluster_, deadline_ms_, 0, keys_);
            operation_ = prefix_.get();
        }
    }

    void play() {
        Actions actions;
        operation_->start(now_ms_, actions);
        run(std::move(actions));
        if (which_ == kOpenThenRead) {
            for (std::size_t i = 0; i < room_.size(); ++i) {
                const auto& located = get_->results()[i];
                room_[i] = wire::ok(located.status) ? std::min(located.length, wire::kValueBytesMax)
                                                    : GetBatch::kNotWanted;
            }
            get_->set_capacities(room_);
            deadline_ms_ = now_ms_ + kTimeoutMs;
            Actions more;
            get_->read(deadline_ms_, now_ms_, more);
            run(std::move(more));
        }
        check_results();
    }

  private:
    void run(Actions actions) {
        lane_ = false;
        reads_.clear();
        writes_.clear();
        for (std::size_t events = 0; !operation_->done(); ++events) {
            take(actions);
            actions = {};
            if (input_.empty() || events > kEventsMax) {
                // Nobody answers any more.
                REQUIRE(operation_->wake_ms() <= deadline_ms_);
                now_ms_ = std::max(now_ms_ + 1, operation_->wake_ms());
                REQUIRE(events < 10 * kEventsMax);
                operation_->on_time(now_ms_, actions);
                continue;
            }
            event(actions);
            check_cluster();
        }
    }

    // What the operation wants done.
    void take(const Actions& actions) {
        if (actions.lane) {
            REQUIRE(!lane_);
            lane_ = true;
            check_question();
        }
        if (actions.open_session) {
            ++session_;
            open_session();
            Actions more;
            operation_->on_session(more);
            take(more);
        }
        for (const auto ticket : actions.reads) {
            check_read(operation_->read(ticket));
            reads_.push_back(ticket);
        }
        for (const auto ticket : actions.writes) {
            check_write(operation_->write(ticket));
            writes_.push_back(ticket);
        }
    }

    void open_session() {
        wire::OpenSessionReply reply;
        reply.session = session_;
        reply.epoch = 1;
        cluster_.session_opened(reply);
    }

    void event(Actions& actions) {
        switch (input_.below(kEvents)) {
            case kAnswer:
                return lane_answer(Status::kOk, right_answer(), actions);
            case kRefuse: {
                const Status status = some_status(input_);
                const auto why = packed([](auto& writer) { writer.text16("no"); });
                return lane_answer(wire::ok(status) ? Status::kBusy : status, why, actions);
            }
            case kRawAnswer: {
                const wire::Bytes body = input_.chunk();
                return lane_answer(some_status(input_), wire::Buffer(body.begin(), body.end()), actions);
            }
            case kLaneLost:
                if (lane_) {
                    lane_ = false;
                    operation_->on_lane_failed(kFailures[input_.below(kFailures.size())], "lost", now_ms_,
                                               actions);
                }
                return;
            case kNodeAnswers:
                return node_answers(actions);
            case kNodeFails:
                return node_fails(actions);
            default:
                now_ms_ += input_.u8();
                return operation_->on_time(now_ms_, actions);
        }
    }

    // ---- the master

    void check_question() {
        const auto body = body_of(operation_->lane_frame());
        switch (operation_->lane_verb()) {
            case Verb::kPutStart:
                asked_count_ = wire::parse_put_start(body).value().keys.count();
                break;
            case Verb::kPutEnd:
                asked_count_ = wire::parse_put_end(body).value().items.size();
                break;
            case Verb::kSegments:
                asked_count_ = wire::parse_segment_ids(body).value().ids.size();
                REQUIRE(asked_count_ > 0);
                break;
            default:
                asked_count_ = wire::parse_keys_request(body).value().keys.count();
                REQUIRE(asked_count_ > 0);
        }
    }

    void lane_answer(Status status, const wire::Buffer& body, Actions& actions) {
        if (!lane_) return;
        lane_ = false;
        if (operation_->lane_verb() == Verb::kPutEnd && wire::ok(status)) {
            if (const auto statuses = wire::parse_statuses(body)) {
                committed_ +=
                    static_cast<std::size_t>(std::count(statuses->begin(), statuses->end(), Status::kOk));
            }
        }
        wire::FrameHeader header;
        header.flags = wire::kFlagReply;
        header.status = status;
        operation_->on_lane_answer(header, body, now_ms_, actions);
    }

    // One that fits the question, or is one key short or long.
    wire::Buffer right_answer() {
        const std::uint8_t odd = input_.u8();
        const std::size_t count = odd == 0xFF   ? asked_count_ + 1
                                  : odd == 0xFE ? asked_count_ - 1
                                                : asked_count_;
        if (!lane_ || count > 64) return {};
        return packed([&](wire::Writer& writer) {
            switch (operation_->lane_verb()) {
                case Verb::kLookup:
                    return places<wire::LookupRecord>(count, writer, [&](wire::LookupRecord& record) {
                        record.put_id = 1 + input_.u8() % 4;
                        const std::uint8_t size = input_.u8();
                        record.size =
                            size < 0xF0 && !room_.empty() ? room_[size % room_.size()] : input_.u64();
                    });
                case Verb::kPutStart:
                    return places<wire::GrantRecord>(
                        count, writer, [&](wire::GrantRecord& record) { record.put_id = input_.u8(); });
                case Verb::kSegments:
                    return segments(count, odd, writer);
                case Verb::kMatchPrefix: {
                    wire::MatchPrefixReply reply;
                    reply.length =
                        odd >= 0xF0 ? input_.u32() : input_.u8() % static_cast<std::uint32_t>(count + 1);
                    reply.miss = some_status(input_);
                    writer.put(reply);
                    return;
                }
                default: {
                    std::vector<Status> statuses(count);
                    for (auto& status : statuses) status = some_status(input_);
                    return wire::encode_statuses(statuses, writer);
                }
            }
        });
    }

    template <class Record, class Fill>
    void places(std::size_t count, wire::Writer& writer, Fill fill) {
        std::vector<wire::ReplicaPlace> all;
        writer.put(static_cast<std::uint32_t>(count));
        writer.put(std::uint32_t{0});
        for (std::size_t i = 0; i < count; ++i) {
            Record record;
            record.status = some_status(input_);
            const std::uint8_t replicas = input_.u8();
            record.replica_count = replicas < 0xF0 ? replicas % 4 : replicas;
            fill(record);
            for (std::size_t left = record.replica_count; left > 0; --left) {
                const std::uint8_t place = input_.u8();
                all.push_back({wire::make_id(1, place), 1 + place % 5u});
            }
            writer.put(record);
        }
        for (const auto& place : all) writer.put(place);
    }

    void segments(std::size_t count, std::uint8_t odd, wire::Writer& writer) {
        static constexpr std::array<std::string_view, 4> kEndpoints = {"tcp://n1:1", "tcp://n2:1", "shm://x",
                                                                       ""};
        const auto asked = wire::parse_segment_ids(body_of(operation_->lane_frame()))->ids;
        std::vector<wire::SegmentInfo> infos(count);
        for (std::size_t i = 0; i < count; ++i) {
            infos[i].status = odd >= 0xE0 ? some_status(input_) : Status::kOk;
            infos[i].segment = odd >= 0xF0 || i >= asked.size() ? input_.u8() : asked[i];
            infos[i].description.host_id = input_.flag() ? "here" : "there";
            for (std::size_t left = input_.below(3); left > 0; --left) {
                infos[i].description.endpoints.push_back(kEndpoints[input_.below(kEndpoints.size())]);
            }
        }
        wire::encode_segments_reply(infos, writer);
    }

    // ---- the nodes

    void check_read(const NodeRead& read) {
        const auto message = wire::parse_read(body_of(read.frame));
        REQUIRE(message && message->items.size() == read.parts.size() && !read.parts.empty());
        REQUIRE(cluster_.knows(read.peer));
        std::uint64_t bytes = 0;
        for (const auto& part : read.parts) {
            REQUIRE(part.index < keys_.size());
            REQUIRE(room_[part.index] != GetBatch::kNotWanted);
            REQUIRE(part.offset <= room_[part.index] && part.length <= room_[part.index] - part.offset);
            bytes += part.length;
        }
        REQUIRE(bytes == read.bytes);
    }

    void check_write(const NodeWrite& write) {
        const auto message = wire::parse_write(body_of(write.frame));
        REQUIRE(message && message->items.size() == write.index.size() && !write.index.empty());
        REQUIRE(cluster_.knows(write.peer));
        for (std::size_t i = 0; i < write.index.size(); ++i) {
            REQUIRE(write.index[i] < keys_.size());
            REQUIRE(message->items[i].length == items_[write.index[i]].size);
            const auto header = wire::parse_value_header(message->headers[i]);
            REQUIRE(header && header->key == keys_[write.index[i]]);
        }
    }

    void node_answers(Actions& actions) {
        if (!reads_.empty()) return answer_read(pick(reads_), actions);
        if (writes_.empty()) return;
        const Ticket ticket = pick(writes_);
        const std::uint8_t odd = input_.u8();
        const std::size_t count = operation_->write(ticket).index.size();
        std::vector<Status> statuses(odd == 0xFF ? count + 1 : odd == 0xFE ? count - 1 : count);
        for (auto& status : statuses) status = some_status(input_);
        wire::FrameHeader header;
        header.flags = wire::kFlagReply;
        header.status = odd >= 0xF0 && odd < 0xFC ? some_status(input_) : Status::kOk;
        const auto body = packed([&](auto& writer) { wire::encode_statuses(statuses, writer); });
        operation_->on_write_answer(ticket, header, body, now_ms_, actions);
    }

    // Frames as a node would send them, or nearly; ReadAssembly says which of them can be believed.
    void answer_read(Ticket ticket, Actions& actions) {
        const auto& read = operation_->read(ticket);
        ReadAssembly assembly(read.parts);
        const std::uint8_t odd = input_.u8();
        bool has_more = true;
        for (std::uint32_t next = 0; has_more;) {
            std::vector<wire::Piece> pieces;
            while (next < read.parts.size() && (odd & 1) == 0) add_piece(read.parts, next, odd, pieces);
            for (std::size_t left = (odd & 1) != 0 ? input_.below(4) : 0;
                 left > 0 && next < read.parts.size(); --left) {
                add_piece(read.parts, next, odd, pieces);
            }
            has_more = (odd & 1) != 0 && next < read.parts.size();
            const std::vector<std::string_view> metadata(pieces.size(), odd % 8 == 0 ? "bf16" : "");
            const auto body =
                packed([&](auto& writer) { wire::encode_read_reply(pieces, metadata, writer); });
            const auto reply = wire::parse_read_reply(body);
            if (!reply || !assembly.accept(*reply, has_more)) {
                settle(read, assembly.answers());
                return operation_->on_read_failed(ticket, assembly.answers(), Failure::kMalformed, "odd",
                                                  now_ms_, actions);
            }
            std::vector<wire::Verdict> verdicts;
            for (const auto& range : assembly.ranges()) {
                const auto& part = read.parts[range.part];
                REQUIRE(range.offset <= part.length && range.length <= part.length - range.offset);
                const std::uint8_t lie = odd >= 0x80 ? input_.u8() : 0;
                assembly.answers()[range.part].checksum = 7 + (lie & 1);
                const auto status = (lie & 2) != 0 ? some_status(input_) : Status::kOk;
                verdicts.push_back({status, static_cast<std::uint16_t>((lie & 4) == 0), 7});
            }
            assembly.settle(verdicts);
        }
        settle(read, assembly.answers());
        operation_->on_read_done(ticket, assembly.answers(), now_ms_, actions);
    }

    void add_piece(const std::vector<ReadPart>& parts, std::uint32_t& next, std::uint8_t odd,
                   std::vector<wire::Piece>& pieces) {
        const std::uint8_t how = (odd & 2) != 0 ? input_.u8() : 0;
        wire::Piece piece;
        piece.index = (how & 0xE0) == 0xE0 ? how : next;
        piece.length = (how & 1) != 0 ? input_.u64() >> (how % 64) : parts[next].length;
        piece.flags = (how & 2) == 0 ? std::uint16_t{wire::kPieceLast} : std::uint16_t{0};
        pieces.push_back(piece);
        ++next;
    }

    void node_fails(Actions& actions) {
        const Failure failure = kFailures[input_.below(kFailures.size())];
        if (!reads_.empty()) {
            const Ticket ticket = pick(reads_);
            const auto& read = operation_->read(ticket);
            std::vector<PartAnswer> answers(read.parts.size());
            if (input_.flag()) {  // it ended after its first parts
                for (auto& answer : std::span(answers).first(answers.size() / 2)) {
                    answer = {{some_status(input_), 1, 7}, 7, {}};
                }
            }
            settle(read, answers);
            return operation_->on_read_failed(ticket, answers, failure, "failed", now_ms_, actions);
        }
        if (!writes_.empty()) operation_->on_write_failed(pick(writes_), failure, "failed", now_ms_, actions);
    }

    Ticket pick(std::vector<Ticket>& open) {
        const auto at = open.begin() + static_cast<std::ptrdiff_t>(input_.u8() % open.size());
        const Ticket ticket = *at;
        open.erase(at);
        return ticket;
    }

    // Which keys were given bytes that a reader may take.
    void settle(const NodeRead& read, const std::vector<PartAnswer>& answers) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
            const auto& part = read.parts[i];
            const bool is_alone = part.offset == 0 && part.length < kStripeBytesMin;
            const bool matches = !checksums_ || answers[i].verdict.has_checksum == 0 ||
                                 answers[i].verdict.checksum == answers[i].checksum || !is_alone;
            if (wire::ok(answers[i].verdict.status) && matches) ++good_parts_[part.index];
        }
    }

    void check_cluster() {
        for (const PeerId peer : cluster_.probes_due(now_ms_)) {
            REQUIRE(cluster_.knows(peer));
            cluster_.probe_answered(peer);
        }
        REQUIRE(cluster_.peer_count() <= cluster_.segment_count());
        cluster_.segments_to_check(now_ms_);
        cluster_.take_releases();
        cluster_.take_revokes();
    }

    void check_results() {
        REQUIRE(operation_->done());
        if (get_) {
            REQUIRE(get_->results().size() == keys_.size());
            for (std::size_t i = 0; i < keys_.size(); ++i) {
                const auto& result = get_->results()[i];
                if (!wire::ok(result.status) || room_[i] == GetBatch::kNotWanted) continue;
                REQUIRE(result.length <= room_[i]);
                REQUIRE(good_parts_[static_cast<std::uint32_t>(i)] > 0 || result.length == 0);
            }
            get_->release_leases(now_ms_);
        }
        if (put_) {
            const auto& statuses = put_->statuses();
            REQUIRE(statuses.size() == keys_.size());
            const auto stored = std::count(statuses.begin(), statuses.end(), Status::kOk);
            REQUIRE(static_cast<std::size_t>(stored) <= committed_);
        }
        if (batch_) REQUIRE(batch_->statuses().size() == keys_.size());
        if (prefix_) REQUIRE(prefix_->length() <= keys_.size());
        check_cluster();
    }

    Input input_;
    ClusterState cluster_;
    Which which_ = kGet;
    std::uint64_t now_ms_ = 1'000;
    std::uint64_t deadline_ms_ = 0;
    wire::SessionId session_ = 7;
    bool checksums_ = true;
    std::vector<std::string_view> keys_;
    std::vector<std::uint64_t> room_;
    std::vector<PutItem> items_;
    std::unique_ptr<GetBatch> get_;
    std::unique_ptr<PutBatch> put_;
    std::unique_ptr<KeyBatch> batch_;
    std::unique_ptr<MatchPrefix> prefix_;
    Operation* operation_ = nullptr;

    bool lane_ = false;  // a request of it lies with the master
    std::size_t asked_count_ = 0;
    std::vector<Ticket> reads_;
    std::vector<Ticket> writes_;
    std::map<std::uint32_t, std::size_t> good_parts_;  // by key
    std::size_t committed_ = 0;
};

// ---- seeds

Script begun(Which which, std::initializer_list<std::uint8_t> keys, std::uint8_t odd = 0) {
    Script script;
    script.u8(which).u8(odd).u8(keys.size());
    for (const auto key : keys) script.u8(key);
    return script;
}
Script& bytes(Script& script, std::initializer_list<std::uint8_t> choices) {
    for (const auto choice : choices) script.u8(choice);
    return script;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    World world(Input({data, size}));
    world.play();
    return 0;
}

std::vector<std::pair<std::string, wire::Buffer>> fuzz::seeds() {
    std::vector<std::pair<std::string, wire::Buffer>> made;
    // Two keys of 100 bytes, the first in two places; its first copy is damaged, the second copy is good.
    Script get = begun(kGet, {16, 17});
    bytes(get, {kAnswer, 0, 0, 2, 1, 0, 1, 2, 0, 1, 2, 0, 1});
    bytes(get, {kAnswer, 0, 0, 1, 0, 0, 1, 1});
    bytes(get, {kNodeAnswers, 0, 0x80, 1, 0, kNodeAnswers, 0, 0, kNodeAnswers, 0, 0});
    made.emplace_back("get", get);
    for (const auto& [name, which] :
         {std::pair{"get_large", kGet}, std::pair{"open_then_read", kOpenThenRead}}) {
        Script large = begun(which, {32, 41}, 2);
        bytes(large, {kAnswer, 0, 0, 1, 1, 0, 1, 0, 1, 2, 1, 2});
        bytes(large, {kAnswer, 0, 0, 1, 0, 0, 1, 1});
        bytes(large,
              {kNodeAnswers, 0, 0, kNodeFails, 1, 0, 0, kNodeAnswers, 0, 0, kNodeAnswers, 0, 0, kWait, 200});
        made.emplace_back(name, large);
    }
    Script put = begun(kPut, {16, 17, 18});
    bytes(put, {kAnswer, 0, 0, 1, 1, 1, 0, 1, 2, 2, 3, 0, 3});
    bytes(put, {kAnswer, 0, 0, 1, 0,       0, 1, 1, kNodeAnswers, 0, 0, 0, 0, kNodeAnswers,
                0,       0, 0, 0, kAnswer, 0, 0, 0});
    bytes(put, {kWait, 10, kAnswer, 0, 0, 1, 3, 3, kNodeAnswers, 0, 0, 0, kAnswer, 0, 0});
    made.emplace_back("put", put);
    Script put_failing = begun(kPut, {16, 24}, 16);
    bytes(put_failing, {kAnswer, 0, 0, 2, 1, 1, 2, 0, 2, 2, 1, 2, kAnswer, 0, 0, 1, 0, 0, 1, 1});
    bytes(put_failing, {kNodeFails, 0, 0, kNodeFails, 0, 1, kNodeAnswers, 0, 0, 8, 9, kAnswer, 0, 0, 9});
    bytes(put_failing, {kWait, 200, kRefuse, 17, kRefuse, 4, kWait, 200, kLaneLost, 1, kWait, 200});
    made.emplace_back("put_failing", put_failing);
    Script keys = begun(kKeys, {1, 2, 0xF0, 3});
    made.emplace_back("keys", bytes(keys, {kLaneLost, 1, kRefuse, 17, kAnswer, 0, 0, 11, 0}));
    Script prefix = begun(kPrefix, {1, 2, 3});
    made.emplace_back("prefix", bytes(prefix, {kRefuse, 18, kRefuse, 4, kWait, 100, kAnswer, 0, 2, 11}));
    Script raw = begun(kGet, {16, 17});
    raw.u8(kRawAnswer).chunk(wire::Buffer(60, 1)).u8(0);
    made.emplace_back("raw", raw);
    return made;
}
