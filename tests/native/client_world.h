// A master and nodes small enough to be obviously right, and a driver that carries a client operation's
// actions out against them on a fake clock: what the client core's tests plant their faults in.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "client/core/cluster.h"
#include "client/core/get_batch.h"
#include "client/core/key_batches.h"
#include "client/core/operation.h"
#include "client/core/put_batch.h"
#include "client/core/read_assembly.h"
#include "wire/crc32c.h"
#include "wire/digest.h"
#include "wire/value_checksum.h"
#include "wire/value_header.h"

namespace world {

namespace wire = mooncake::wire;
using namespace mooncake::client;
using wire::Status;

struct Stored {
    std::uint64_t digest = 0;
    wire::ValueHeader header;
    std::string metadata;
    std::string bytes;
};

struct Node {
    wire::SegmentId segment = 0;
    std::string endpoint;
    std::map<wire::ReplicaId, Stored> replicas;
    std::optional<Failure> failure;  // every request to it ends so
    Status write_status = Status::kOk;
    bool breaks_stale_connections = false;  // requests on connections that are not fresh
    int busy_reads = 0;                     // answered BUSY so often
    std::size_t reads = 0;
    std::size_t writes = 0;
};

struct Object {
    wire::PutId put_id = 0;
    std::uint64_t size = 0;
    std::vector<wire::ReplicaPlace> places;
};

class World {
  public:
    World() : cluster("tenant", "here", 1, 64) {
        for (wire::SegmentId segment = 11; segment <= 13; ++segment) {
            nodes.push_back(
                {segment, "tcp://node:" + std::to_string(segment), {}, {}, Status::kOk, false, 0, 0, 0});
        }
        open_session(7);
    }

    void open_session(wire::SessionId id) {
        session = id;
        wire::OpenSessionReply reply;
        reply.session = id;
        reply.epoch = 1;
        cluster.session_opened(reply);
    }

    Node& node(wire::SegmentId segment) {
        for (auto& one : nodes) {
            if (one.segment == segment) return one;
        }
        check::fail(__FILE__, __LINE__, "no such segment");
    }
    Node& node_of(PeerId peer) {
        for (auto& one : nodes) {
            if (one.endpoint == cluster.peer_endpoint(peer)) return one;
        }
        check::fail(__FILE__, __LINE__, "no such peer");
    }

    // What the driver does in the background: probes that are due, and the questions whether segments still
    // exist.
    void probe() {
        for (const auto peer : cluster.probes_due(now_ms)) {
            ++probes;
            const auto endpoint = cluster.peer_endpoint(peer);
            const auto at = std::find_if(nodes.begin(), nodes.end(),
                                         [&](const Node& node) { return node.endpoint == endpoint; });
            if (at != nodes.end() && !at->failure) {
                cluster.probe_answered(peer);
            } else {
                cluster.probe_failed(peer, at == nodes.end() ? Failure::kRefused : *at->failure, now_ms);
            }
        }
        const auto asked_about = cluster.segments_to_check(now_ms);
        if (asked_about.empty()) return;
        wire::Buffer request;
        wire::Writer request_writer(request);
        wire::encode_segment_ids({session, 0, 0, 0}, asked_about, request_writer);
        wire::Buffer reply;
        wire::Writer writer(reply);
        segments(*wire::parse_segment_ids(request), writer);
        cluster.learn(asked_about, *wire::parse_segments_reply(reply));
    }

    // A value as a finished put leaves it.
    void plant(const std::string& key, const std::string& bytes,
               const std::vector<wire::SegmentId>& segments) {
        Object object{wire::make_id(1, next_id++), bytes.size(), {}};
        for (const auto segment : segments) {
            const auto replica = wire::make_id(1, next_id++);
            Stored stored;
            stored.digest = wire::key_digest("tenant", key);
            stored.bytes = bytes;
            stored.header.put_id = object.put_id;
            stored.header.flags = wire::kValueHasChecksum;
            const auto seed = wire::value_checksum_seed("tenant", key, object.put_id);
            stored.header.checksum = wire::crc32c(seed, bytes.data(), bytes.size());
            node(segment).replicas[replica] = stored;
            object.places.push_back({replica, segment});
        }
        objects[key] = object;
    }

    // Runs the operation to its end; `values` and `targets` are indexed as its keys.
    void run(Operation& operation, const std::vector<std::string>& values = {},
             std::vector<std::string>* targets = nullptr) {
        run(operation, values, targets, [&](Actions& actions) { operation.start(now_ms, actions); });
    }
    void run(Operation& operation, const std::vector<std::string>& values, std::vector<std::string>* targets,
             const std::function<void(Actions&)>& begin) {
        values_ = &values;
        targets_ = targets;
        Actions actions;
        begin(actions);
        for (int steps = 0; !operation.done(); ++steps) {
            CHECK(steps < 10'000);
            const Actions current = std::exchange(actions, {});
            const bool is_idle =
                !current.lane && !current.open_session && current.reads.empty() && current.writes.empty();
            if (is_idle) {
                now_ms = std::max(now_ms, operation.wake_ms());
                operation.on_time(now_ms, actions);
                continue;
            }
            if (current.open_session) {
                ++sessions_opened;
                open_session(session_after_reopen);
                operation.on_session(actions);
            }
            if (current.lane) ask_master(operation, actions);
            for (const auto ticket : current.reads) read(operation, ticket, actions);
            for (const auto ticket : current.writes) write(operation, ticket, actions);
        }
    }

    ClusterState cluster;
    std::vector<Node> nodes;
    std::map<std::string, Object> objects;
    std::map<wire::PutId, std::pair<std::string, Object>> unfinished;
    std::uint8_t location_ttl = 0;    // told with every value found
    std::set<std::string> not_ready;  // keys that somebody else is putting
    bool damages_parts = false;  // what comes of a part of a value is another one
    std::uint64_t now_ms = 1'000;
    wire::SessionId session = 7;
    wire::SessionId session_after_reopen = 8;
    std::size_t sessions_opened = 0;
    std::uint64_t next_id = 1;
    std::vector<wire::Verb> asked;
    std::vector<std::uint64_t> sequences;       // of requests that change something, as they came
    std::map<wire::Verb, int> lost_answers;     // carried out, but the answer does not arrive
    std::map<wire::Verb, int> unknown_session;  // answers SESSION_UNKNOWN so often
    std::function<void(wire::Verb)> on_asked;
    std::vector<wire::SegmentId> placement = {11};  // of each put, but for avoided segments
    std::size_t executed = 0;
    std::size_t probes = 0;

  private:
    struct Answer {
        wire::FrameHeader header;
        wire::Buffer body;
    };

    void ask_master(Operation& operation, Actions& actions) {
        wire::Reader reader(operation.lane_frame());
        const auto header = reader.get<wire::FrameHeader>();
        CHECK_EQUAL(std::size_t{header.body_bytes}, reader.remaining());
        const auto body = reader.bytes(reader.remaining());
        asked.push_back(header.verb);
        if (on_asked) on_asked(header.verb);
        Answer answer;
        answer.header.flags = wire::kFlagReply;
        wire::Reader again(body);
        const auto request = wire::parse_prefix(again);
        const auto sequence = request.prefix.sequence;
        if (sequence != 0) sequences.push_back(sequence);
        if (unknown_session[header.verb] > 0 || request.prefix.session != session) {
            if (unknown_session[header.verb] > 0) --unknown_session[header.verb];
            answer.header.status = Status::kSessionUnknown;
            wire::Writer(answer.body).text16("who are you?");
        } else if (sequence != 0 && replies_.contains({request.prefix.session, sequence})) {
            answer = replies_[{request.prefix.session, sequence}];
        } else {
            answer.body = execute(header.verb, body);
            if (sequence != 0) replies_[{request.prefix.session, sequence}] = answer;
        }
        if (lost_answers[header.verb] > 0) {
            --lost_answers[header.verb];
            operation.on_lane_failed(Failure::kBroken, "lost", now_ms, actions);
            return;
        }
        CHECK(operation.on_lane_answer(answer.header, answer.body, now_ms, actions));
    }

    wire::Buffer execute(wire::Verb verb, wire::Bytes body) {
        ++executed;
        wire::Buffer out;
        wire::Writer writer(out);
        switch (verb) {
            case wire::Verb::kLookup:
                lookup(*wire::parse_keys_request(body), writer);
                break;
            case wire::Verb::kPutStart:
                put_start(*wire::parse_put_start(body), writer);
                break;
            case wire::Verb::kPutEnd:
                put_end(*wire::parse_put_end(body), writer);
                break;
            case wire::Verb::kSegments:
                segments(*wire::parse_segment_ids(body), writer);
                break;
            case wire::Verb::kMatchPrefix:
                match_prefix(*wire::parse_keys_request(body), writer);
                break;
            default:
                by_key(verb, *wire::parse_keys_request(body), writer);
        }
        return out;
    }

    void by_key(wire::Verb verb, const wire::KeysRequest& request, wire::Writer& writer) {
        std::vector<Status> statuses;
        for (wire::KeyList::Cursor cursor(request.keys); !cursor.done();) {
            const std::string key(cursor.next());
            statuses.push_back(objects.contains(key) ? Status::kOk : Status::kObjectNotFound);
            if (verb == wire::Verb::kRemove) objects.erase(key);
        }
        wire::encode_statuses(statuses, writer);
    }

    void match_prefix(const wire::KeysRequest& request, wire::Writer& writer) {
        wire::MatchPrefixReply reply;
        for (wire::KeyList::Cursor cursor(request.keys); !cursor.done(); ++reply.length) {
            if (objects.contains(std::string(cursor.next()))) continue;
            reply.miss = Status::kObjectNotFound;
            break;
        }
        writer.put(reply);
    }

    template <class Record>
    static void put_places(const std::vector<Record>& records, const std::vector<wire::ReplicaPlace>& places,
                           wire::Writer& writer) {
        writer.put(static_cast<std::uint32_t>(records.size()));
        writer.put(std::uint32_t{0});
        for (const auto& record : records) writer.put(record);
        for (const auto& place : places) writer.put(place);
    }

    void lookup(const wire::KeysRequest& request, wire::Writer& writer) {
        std::vector<wire::LookupRecord> records;
        std::vector<wire::ReplicaPlace> places;
        for (wire::KeyList::Cursor cursor(request.keys); !cursor.done();) {
            const auto found = objects.find(std::string(cursor.next()));
            wire::LookupRecord record;
            record.status = Status::kObjectNotFound;
            if (found != objects.end()) {
                record.status = Status::kUnreachable;
                for (const auto& place : found->second.places) {
                    if (request.request.avoid.contains(place.segment)) continue;
                    record.status = Status::kOk;
                    record.location_ttl = location_ttl;
                    record.put_id = found->second.put_id;
                    record.size = found->second.size;
                    ++record.replica_count;
                    places.push_back(place);
                }
            }
            records.push_back(record);
        }
        put_places(records, places, writer);
    }

    void put_start(const wire::PutStart& request, wire::Writer& writer) {
        std::vector<wire::GrantRecord> records;
        std::vector<wire::ReplicaPlace> places;
        std::size_t i = 0;
        for (wire::KeyList::Cursor cursor(request.keys); !cursor.done(); ++i) {
            const std::string key(cursor.next());
            wire::GrantRecord record;
            const bool is_begun = std::any_of(unfinished.begin(), unfinished.end(),
                                              [&](const auto& u) { return u.second.first == key; });
            if (objects.contains(key) && (request.options.flags & wire::kPutUpsert) == 0) {
                record.status = Status::kObjectAlreadyExists;
            } else if (not_ready.contains(key) || is_begun) {
                record.status = Status::kNotReady;
            } else {
                Object object{wire::make_id(1, next_id++), request.size(i), {}};
                for (const auto segment : placement) {
                    if (request.request.avoid.contains(segment)) continue;
                    object.places.push_back({wire::make_id(1, next_id++), segment});
                }
                record.put_id = object.put_id;
                record.replica_count = static_cast<std::uint8_t>(object.places.size());
                if (object.places.empty()) {
                    record.status = Status::kNoSpace;
                } else {
                    places.insert(places.end(), object.places.begin(), object.places.end());
                    unfinished[object.put_id] = {key, object};
                }
            }
            records.push_back(record);
        }
        put_places(records, places, writer);
    }

    void put_end(const wire::PutEnd& request, wire::Writer& writer) {
        std::vector<Status> statuses;
        std::size_t at = 0;
        for (const auto& item : request.items) {
            std::vector<wire::ReplicaPlace> written;
            const auto begun = unfinished.find(item.put_id);
            for (std::uint32_t i = 0; i < item.result_count; ++i, ++at) {
                const auto& result = request.results[at];
                if (result.status != Status::kOk && result.status != Status::kSealed) continue;
                if (begun == unfinished.end()) continue;
                for (const auto& place : begun->second.second.places) {
                    if (place.replica == result.replica) written.push_back(place);
                }
            }
            if (begun == unfinished.end()) {
                statuses.push_back(Status::kStaleGrant);
                continue;
            }
            if (!written.empty()) {
                objects[begun->second.first] = {item.put_id, begun->second.second.size, written};
            }
            statuses.push_back(written.empty() ? Status::kWriteFail : Status::kOk);
            unfinished.erase(begun);
        }
        wire::encode_statuses(statuses, writer);
    }

    void segments(const wire::SegmentIds& request, wire::Writer& writer) const {
        std::vector<wire::SegmentInfo> infos;
        for (const auto id : request.ids) {
            wire::SegmentInfo info;
            info.segment = id;
            info.status = Status::kSegmentNotFound;
            for (const auto& one : nodes) {
                if (one.segment != id) continue;
                info.status = Status::kOk;
                info.description.endpoints = {one.endpoint};
                info.description.host_id = id == 13 ? "here" : "elsewhere";
            }
            infos.push_back(info);
        }
        wire::encode_segments_reply(infos, writer);
    }

    void read(Operation& operation, Ticket ticket, Actions& actions) {
        auto& request = operation.read(ticket);
        auto& peer = node_of(request.peer);
        ++peer.reads;
        std::vector<PartAnswer> answers(request.parts.size());
        if (peer.breaks_stale_connections && !request.fresh_connection) {
            operation.on_read_failed(ticket, answers, Failure::kBroken, "stale", now_ms, actions);
            return;
        }
        if (peer.failure) {
            operation.on_read_failed(ticket, answers, *peer.failure, "dead", now_ms, actions);
            return;
        }
        const auto message = wire::parse_read(wire::Bytes(request.frame).subspan(wire::kFrameHeaderBytes));
        CHECK(message.has_value());
        for (std::size_t i = 0; i < message->items.size(); ++i) {
            const auto& item = message->items[i];
            if (peer.busy_reads > 0) {
                --peer.busy_reads;
                answers[i].verdict.status = Status::kBusy;
                continue;
            }
            const auto found = peer.replicas.find(item.replica);
            if (found == peer.replicas.end() || found->second.digest != item.digest) {
                answers[i].verdict.status = Status::kGone;
                continue;
            }
            const auto& stored = found->second;
            const auto piece = stored.bytes.substr(item.offset, item.length);
            const auto& part = request.parts[i];
            (*targets_)[part.index].replace(part.offset, piece.size(), piece);
            const bool is_part = (message->flags & wire::kReadVerified) != 0;
            answers[i].verdict = {
                Status::kOk, 1, is_part ? wire::crc32c(0, piece.data(), piece.size()) : stored.header.checksum};
            answers[i].checksum = wire::crc32c(part.checksum_seed, piece.data(), piece.size());
            if (damages_parts && is_part) ++answers[i].checksum;
            answers[i].user_metadata = stored.metadata;
        }
        operation.on_read_done(ticket, answers, now_ms, actions);
    }

    void write(Operation& operation, Ticket ticket, Actions& actions) {
        auto& request = operation.write(ticket);
        auto& peer = node_of(request.peer);
        ++peer.writes;
        if (peer.breaks_stale_connections && !request.fresh_connection) {
            operation.on_write_failed(ticket, Failure::kBroken, "stale", now_ms, actions);
            return;
        }
        if (peer.failure) {
            operation.on_write_failed(ticket, *peer.failure, "dead", now_ms, actions);
            return;
        }
        const auto message = wire::parse_write(wire::Bytes(request.frame).subspan(wire::kFrameHeaderBytes));
        CHECK(message.has_value());
        std::vector<Status> statuses;
        for (std::size_t i = 0; i < message->items.size(); ++i) {
            const auto& item = message->items[i];
            CHECK_EQUAL(item.segment, peer.segment);
            const auto header = wire::parse_value_header(message->headers[i]);
            CHECK(header.has_value());
            const auto& bytes = (*values_)[request.index[i]];
            CHECK_EQUAL(item.length, bytes.size());
            statuses.push_back(peer.write_status);
            if (peer.write_status != Status::kOk) continue;
            const auto seed = wire::value_checksum_seed(header->tenant, header->key, header->put_id);
            CHECK_EQUAL(header->checksum, wire::crc32c(seed, bytes.data(), bytes.size()));
            Stored stored{wire::key_digest(header->tenant, header->key), *header,
                          std::string(header->user_metadata), bytes};
            peer.replicas[item.replica] = stored;
        }
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_statuses(statuses, writer);
        wire::FrameHeader header;
        header.flags = wire::kFlagReply;
        CHECK(operation.on_write_answer(ticket, header, body, now_ms, actions));
    }

    std::map<std::pair<wire::SessionId, std::uint64_t>, Answer> replies_;
    const std::vector<std::string>* values_ = nullptr;
    std::vector<std::string>* targets_ = nullptr;
};

// A put of these keys and values, run in this world.
inline std::vector<Status> put(World& world, const std::vector<std::string>& keys,
                               const std::vector<std::string>& values, std::uint8_t flags = 0,
                               std::uint64_t timeout_ms = 10'000) {
    std::vector<PutItem> items;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        items.push_back(
            {keys[i], values[i].size(), 0, wire::crc32c(0, values[i].data(), values[i].size()), {}});
    }
    PutBatch::Options options;
    options.placement.flags = flags;
    options.placement.replica_count = static_cast<std::uint8_t>(world.placement.size());
    PutBatch batch(world.cluster, world.now_ms + timeout_ms, items, options);
    world.run(batch, values);
    return batch.statuses();
}

struct Got {
    std::vector<GetResult> results;
    std::vector<std::string> values;
};

inline Got get(World& world, const std::vector<std::string>& keys, std::uint64_t capacity = 64,
               std::uint64_t timeout_ms = 10'000) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    Got got;
    got.values.assign(keys.size(), std::string(capacity, '?'));
    GetBatch batch(world.cluster, world.now_ms + timeout_ms, views, {});
    batch.set_capacities(std::vector<std::uint64_t>(keys.size(), capacity));
    world.run(batch, {}, &got.values);
    got.results = batch.results();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (wire::ok(got.results[i].status)) got.values[i].resize(got.results[i].length);
    }
    return got;
}

}  // namespace world
