#include "client/client.h"

#include <algorithm>

#include "client/call.h"
#include "client/core/key_batches.h"
#include "client/driver.h"
#include "client/keeper.h"
#include "net/event_loop.h"
#include "net/random.h"
#include "wire/crc32c.h"

namespace mooncake::client {

namespace {

// While the master does not answer the keeper, a remove is asked all the same after so long.
constexpr std::uint64_t kReleasesWaitMs = 500;

std::uint64_t deadline_of(const Driver& driver, const CallOptions& options) {
    const auto timeout = options.timeout_ms != 0 ? options.timeout_ms : driver.options().rpc_timeout_ms;
    return net::monotonic_ms() + timeout;
}

void run(Operation& operation, Call& call, CallReport& report) {
    call.run();
    report.was_interrupted = call.was_interrupted();
    report.why = operation.why();
}

void run(Driver& driver, Operation& operation, const CallOptions& options, CallReport& report) {
    Call call(driver, operation, options.interrupted);
    run(operation, call, report);
}

// true: the client can serve nobody any more.
bool refuses(const Driver& driver, CallReport& report) {
    if (driver.is_forked()) {
        report.why = "the client was made before a fork; this process must make its own";
        return true;
    }
    if (driver.is_closed()) report.why = "the client is closed";
    return driver.is_closed();
}

std::uint32_t value_checksum(const Value& value) {
    std::uint32_t checksum = 0;
    for (std::size_t i = 0; i < value.piece_count; ++i) {
        checksum = wire::crc32c(checksum, value.pieces[i].iov_base, value.pieces[i].iov_len);
    }
    return checksum;
}

}  // namespace

// ---- connecting and closing

bool check(const Options& options, std::string& why) {
    const auto within = [&](const char* name, std::uint64_t value, std::uint64_t min, std::uint64_t max) {
        if (value >= min && value <= max) return true;
        why = std::string(name) + " is " + std::to_string(value) + "; it must be " + std::to_string(min) +
              " to " + std::to_string(max);
        return false;
    };
    constexpr std::uint64_t kTimeoutMaxMs = 3'600'000;
    if (options.masters.empty() && options.lane.empty()) {
        why = "no master is named (master_server_addr)";
        return false;
    }
    if (options.control == Control::kGrpc && options.masters.empty()) {
        why =
            "control is grpc, and only a lane is named; name the master's gRPC address (master_server_addr)";
        return false;
    }
    return within("the length of tenant", options.tenant.size(), 0, wire::kTenantBytesMax) &&
           within("the length of name", options.name.size(), 0, wire::kNameBytesMax) &&
           within("the length of host_id", options.host_id.size(), 0, wire::kNameBytesMax) &&
           within("connect_timeout_ms", options.connect_timeout_ms, 1, kTimeoutMaxMs) &&
           within("rpc_timeout_ms", options.rpc_timeout_ms, 1, kTimeoutMaxMs) &&
           within("connections_a_peer_max", options.connections_a_peer_max, 1, 64) &&
           within("location_cache_max", options.location_cache_max, 0, kLocationsMax) &&
           within("bytes_in_flight_a_peer_max", options.bytes_in_flight_a_peer_max, 1u << 20,
                  wire::kValueBytesMax);
}

std::unique_ptr<Client> Client::connect(const Options& options, std::string& why, wire::Status& status,
                                        const std::function<bool()>& interrupted) {
    auto driver = std::make_shared<Driver>(options, net::random_uuid(), net::random_seed());
    auto keeper = std::make_unique<Keeper>(*driver);
    const net::Patience patience(net::monotonic_ms() + options.connect_timeout_ms, interrupted);
    if (!keeper->connect(patience, why, status)) return nullptr;
    keeper->start();
    return std::unique_ptr<Client>(new Client(std::move(driver), std::move(keeper)));
}

Client::Client(std::shared_ptr<Driver> driver, std::unique_ptr<Keeper> keeper)
    : driver_(std::move(driver)), keeper_(std::move(keeper)) {}

Client::~Client() {
    if (driver_->is_forked()) {
        // The thread is the parent's; so is what the locks guard. The child leaves it all alone.
        (void)keeper_.release();
        (void)new std::shared_ptr<Driver>(std::move(driver_));
        return;
    }
    close();
}

void Client::close() {
    if (driver_->is_forked()) return;
    driver_->set_closed();
    keeper_->stop();
    driver_->close_idle();
}

bool Client::is_closed() const { return driver_->is_forked() || driver_->is_closed(); }
bool Client::is_connected() const { return !is_closed() && keeper_->is_connected(); }
bool Client::is_over_grpc() const { return !is_closed() && driver_->is_over_grpc(); }
std::vector<LocalPeer> Client::local_peers() const {
    return is_closed() ? std::vector<LocalPeer>{} : driver_->local_peers().list();
}
LocationCounts Client::location_counts() const {
    if (driver_->is_forked()) return {};
    return driver_->cluster().locked(
        [](auto& state) { return state.locations().counts(net::boottime_ms()); });
}
const Options& Client::options() const { return driver_->options(); }

// ---- verbs

std::vector<wire::Status> Client::put_many(Keys keys, std::span<const Value> values, const PutOptions& put,
                                           std::span<const std::string_view> user_metadata,
                                           std::span<const std::uint64_t> parents, const CallOptions& options,
                                           CallReport& report) {
    if (refuses(*driver_, report)) return std::vector(keys.size(), wire::Status::kClosed);
    const bool checksums = driver_->options().checksums;
    std::vector<PutItem> items(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        items[i].key = keys[i];
        items[i].size = values[i].size;
        if (!parents.empty()) items[i].parent_digest = parents[i];
        if (!user_metadata.empty()) items[i].user_metadata = user_metadata[i];
        if (checksums) items[i].value_checksum = value_checksum(values[i]);
    }
    PutBatch::Options placement;
    placement.placement = {put.replica_count, put.flags, 0, put.soft_pin_ms, put.ttl_ms};
    placement.preferred = put.preferred;
    placement.checksums = checksums;
    PutBatch batch(driver_->cluster(), deadline_of(*driver_, options), items, std::move(placement));
    Call call(*driver_, batch, options.interrupted);
    call.set_values(values);
    run(batch, call, report);
    return batch.statuses();
}

std::vector<GetResult> Client::get_into_many(Keys keys, std::span<const Target> targets,
                                             const CallOptions& options, CallReport& report) {
    if (refuses(*driver_, report)) return std::vector(keys.size(), GetResult{wire::Status::kClosed, 0, 0});
    return read_at_once({driver_->options().checksums, false, {}}, keys, targets, options, report);
}

std::vector<GetResult> Client::read_at_once(const GetBatch::Options& what, Keys keys,
                                            std::span<const Target> targets, const CallOptions& options,
                                            CallReport& report) {
    GetBatch batch(driver_->cluster(), deadline_of(*driver_, options), keys, what);
    std::vector<std::uint64_t> capacities(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) capacities[i] = targets[i].capacity;
    batch.set_capacities(std::move(capacities));
    Call call(*driver_, batch, options.interrupted);
    call.set_targets(targets);
    run(batch, call, report);
    return batch.results();
}

std::vector<GetResult> Client::get_ranges_many(Keys keys, std::span<const std::uint64_t> offsets,
                                               std::span<const Target> targets, const CallOptions& options,
                                               CallReport& report) {
    if (refuses(*driver_, report)) return std::vector(keys.size(), GetResult{wire::Status::kClosed, 0, 0});
    std::vector<ValueRange> ranges(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) ranges[i] = {offsets[i], targets[i].capacity};
    return read_at_once({driver_->options().checksums, false, ranges}, keys, targets, options, report);
}

Client::Viewed Client::view_many(Keys keys, bool verify, const CallOptions& options, CallReport& report) {
    const auto deadline_ms = deadline_of(*driver_, options);
    Viewed viewed = view_once(keys, verify, deadline_ms, options, report);
    for (int attempt = 0; attempt < kReopensMax && !report.was_interrupted; ++attempt) {
        std::vector<std::size_t> grown;
        std::vector<std::string_view> again;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (viewed.results[i].status != wire::Status::kBufferOverflow) continue;
            grown.push_back(i);
            again.push_back(keys[i]);
        }
        if (grown.empty()) break;
        Viewed anew = view_once(again, verify, deadline_ms, options, report);
        for (std::size_t i = 0; i < grown.size(); ++i) {
            viewed.results[grown[i]] = anew.results[i];
            viewed.views[grown[i]] = std::move(anew.views[i]);
        }
    }
    return viewed;
}

Client::Viewed Client::view_once(Keys keys, bool verify, std::uint64_t deadline_ms,
                                 const CallOptions& options, CallReport& report) {
    Viewed viewed{std::vector(keys.size(), GetResult{wire::Status::kClosed, 0, 0}), {}};
    viewed.views.resize(keys.size());
    if (refuses(*driver_, report)) return viewed;
    GetBatch batch(driver_->cluster(), deadline_ms, keys, {driver_->options().checksums, false, {}, true});
    run(*driver_, batch, options, report);
    if (!report.was_interrupted) {
        std::vector<Target> sizes;
        std::vector<std::uint64_t> capacities;
        for (const auto& result : batch.results()) {
            sizes.push_back({nullptr, result.length});
            capacities.push_back(wire::ok(result.status) ? result.length : GetBatch::kNotWanted);
        }
        batch.set_capacities(std::move(capacities));
        Views views(batch.results(), verify);
        Call call(*driver_, batch, options.interrupted);
        call.set_targets(sizes);
        call.set_views(views);
        call.run([&](std::uint64_t now_ms, Actions& actions) { batch.read(deadline_ms, now_ms, actions); });
        report.was_interrupted = call.was_interrupted();
        report.why = batch.why();
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const auto& result = batch.results()[i];
            if (wire::ok(result.status)) viewed.views[i] = views.take(i, result);
        }
    }
    viewed.results = batch.results();
    return viewed;
}

std::unique_ptr<OpenValues> Client::open(Keys keys, bool with_user_metadata, const CallOptions& options,
                                         CallReport& report, bool to_read) {
    auto batch = std::make_unique<GetBatch>(
        driver_->cluster(), deadline_of(*driver_, options), keys,
        GetBatch::Options{driver_->options().checksums, with_user_metadata, {}, false, to_read});
    if (refuses(*driver_, report)) {
        batch->give_up(wire::Status::kClosed);
    } else {
        run(*driver_, *batch, options, report);
    }
    return std::unique_ptr<OpenValues>(new OpenValues(driver_, std::move(batch)));
}

OpenValues::~OpenValues() {
    if (!driver_->is_forked()) batch_->release_leases(net::monotonic_ms());
}

void OpenValues::read_into(std::span<const Target> targets, const CallOptions& options, CallReport& report) {
    std::vector<std::uint64_t> capacities(targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
        capacities[i] = targets[i].data != nullptr ? targets[i].capacity : GetBatch::kNotWanted;
    }
    batch_->set_capacities(std::move(capacities));
    if (refuses(*driver_, report)) {
        batch_->refuse_reading(wire::Status::kClosed);
        return;
    }
    Call call(*driver_, *batch_, options.interrupted);
    call.set_targets(targets);
    const auto deadline_ms = deadline_of(*driver_, options);
    call.run([&](std::uint64_t now_ms, Actions& actions) { batch_->read(deadline_ms, now_ms, actions); });
    report.was_interrupted = call.was_interrupted();
    report.why = batch_->why();
}

std::vector<wire::Status> Client::key_batch(wire::Verb verb, std::uint32_t flags, Keys keys,
                                            const CallOptions& options, CallReport& report,
                                            std::span<const wire::SegmentId> segments) {
    if (refuses(*driver_, report)) return std::vector(keys.size(), wire::Status::kClosed);
    const auto deadline_ms = deadline_of(*driver_, options);
    if (verb == wire::Verb::kRemove && (flags & wire::kRemoveForce) == 0) {
        // Only reads of others may refuse it, not those that this client has ended.
        const auto now = net::monotonic_ms();
        driver_->cluster().wait_releases_told(
            std::min(kReleasesWaitMs, deadline_ms - std::min(now, deadline_ms)));
    }
    KeyBatch batch(driver_->cluster(), deadline_ms, verb, flags, keys, segments);
    run(*driver_, batch, options, report);
    return batch.statuses();
}

std::vector<wire::Status> Client::exists_many(Keys keys, bool hold, const CallOptions& options,
                                              CallReport& report) {
    return key_batch(wire::Verb::kExists, hold ? 0U : wire::kWithoutHold, keys, options, report);
}

std::vector<wire::Status> Client::remove_many(Keys keys, bool force, const CallOptions& options,
                                              CallReport& report) {
    return key_batch(wire::Verb::kRemove, force ? wire::kRemoveForce : 0U, keys, options, report);
}

std::vector<wire::Status> Client::remove_copies(Keys keys, std::span<const wire::SegmentId> segments,
                                                const CallOptions& options, CallReport& report) {
    return key_batch(wire::Verb::kRemove, wire::kRemoveCopies, keys, options, report, segments);
}

std::vector<wire::Status> Client::touch_many(Keys keys, const CallOptions& options, CallReport& report) {
    return key_batch(wire::Verb::kTouch, 0, keys, options, report);
}

std::vector<LocateBatch::Located> Client::locate_many(Keys keys, const CallOptions& options,
                                                      CallReport& report) {
    if (refuses(*driver_, report))
        return std::vector(keys.size(), LocateBatch::Located{wire::Status::kClosed, 0, {}});
    LocateBatch batch(driver_->cluster(), deadline_of(*driver_, options), keys);
    run(*driver_, batch, options, report);
    return std::move(batch.located());
}

MatchAnswer Client::match_prefix(Keys keys, bool hold, const CallOptions& options, CallReport& report) {
    if (refuses(*driver_, report)) return {};
    MatchPrefix operation(driver_->cluster(), deadline_of(*driver_, options), hold ? 0U : wire::kWithoutHold,
                          keys);
    run(*driver_, operation, options, report);
    return {operation.status(), operation.length(), operation.miss()};
}

template <class Encode>
wire::Status Client::question(wire::Verb verb, Encode encode, wire::Buffer& body, const CallOptions& options,
                              CallReport& report, bool is_mutating) {
    if (refuses(*driver_, report)) return wire::Status::kClosed;
    Question<Encode> operation(driver_->cluster(), deadline_of(*driver_, options), verb, is_mutating, encode);
    run(*driver_, operation, options, report);
    body = operation.body();
    return operation.status();
}

ListAnswer Client::list(std::uint64_t cursor, std::uint32_t limit, std::string_view key_prefix,
                        const CallOptions& options, CallReport& report) {
    ListAnswer answer;
    wire::Buffer body;
    const auto encode = [&](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_list(prefix, cursor, limit, key_prefix, writer);
    };
    answer.status = question(wire::Verb::kList, encode, body, options, report);
    if (!wire::ok(answer.status)) return answer;
    const auto reply = wire::parse_list_reply(body);
    if (!reply) {
        answer.status = wire::Status::kRpcFail;
        return answer;
    }
    answer.cursor = reply->cursor;
    for (const auto& object : reply->objects) {
        answer.objects.push_back(
            {std::string(object.key), object.size, object.put_id, object.replica_count, object.flags});
    }
    return answer;
}

ExplainAnswer Client::explain(std::string_view key, const CallOptions& options, CallReport& report) {
    ExplainAnswer answer;
    wire::Buffer body;
    std::vector<wire::SegmentId> avoided;
    driver_->cluster().avoid(avoided);
    const auto encode = [&](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_keys_request(prefix, avoided, {&key, 1}, writer);
    };
    answer.status = question(wire::Verb::kWhy, encode, body, options, report);
    if (!wire::ok(answer.status)) return answer;
    const auto reply = wire::parse_why_reply(body);
    if (!reply || reply->size() != 1) {
        answer.status = wire::Status::kRpcFail;
    } else {
        answer.why = reply->front();
    }
    return answer;
}

InspectAnswer Client::inspect(wire::Subject subject, std::string_view name, std::uint32_t limit,
                              const CallOptions& options, CallReport& report) {
    InspectAnswer answer;
    std::vector<wire::SegmentId> avoided;
    driver_->cluster().avoid(avoided);
    const auto encode = [&](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_inspect(prefix, avoided, subject, limit, name, writer);
    };
    answer.status = question(wire::Verb::kInspect, encode, answer.body, options, report);
    if (wire::ok(answer.status) && !wire::parse_inspect_reply(answer.body)) {
        answer.status = wire::Status::kRpcFail;
    }
    return answer;
}

TaskAnswer Client::create_task(wire::TaskType type, std::string_view key, std::string_view source,
                               std::span<const std::string> targets, const CallOptions& options,
                               CallReport& report) {
    TaskAnswer answer;
    wire::Buffer body;
    const std::vector<std::string_view> names(targets.begin(), targets.end());
    const auto encode = [&](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_create_task(prefix, key, source, names, writer);
    };
    const bool moves = type == wire::TaskType::kMove;
    answer.status = question(moves ? wire::Verb::kCreateMoveTask : wire::Verb::kCreateCopyTask, encode, body,
                             options, report, true);
    if (!wire::ok(answer.status)) return answer;
    const auto task = wire::parse_create_task_reply(body);
    answer.record.type = type;
    answer.record.task = task.value_or(0);
    if (!task) answer.status = wire::Status::kRpcFail;
    return answer;
}

TaskAnswer Client::query_task(wire::TaskId task, const CallOptions& options, CallReport& report) {
    TaskAnswer answer;
    wire::Buffer body;
    const auto encode = [&](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_query_task(prefix, task, writer);
    };
    answer.status = question(wire::Verb::kQueryTask, encode, body, options, report);
    if (!wire::ok(answer.status)) return answer;
    const auto told = wire::parse_told_task(body);
    if (!told) {
        answer.status = wire::Status::kRpcFail;
        return answer;
    }
    answer.record = told->record;
    answer.message = told->message;
    return answer;
}

SegmentsAnswer Client::segments(const CallOptions& options, CallReport& report) {
    SegmentsAnswer answer;
    wire::Buffer body;
    const auto encode = [](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_segment_ids(prefix, {}, writer);
    };
    answer.status = question(wire::Verb::kSegments, encode, body, options, report);
    if (!wire::ok(answer.status)) return answer;
    const auto infos = wire::parse_segments_reply(body);
    if (!infos) {
        answer.status = wire::Status::kRpcFail;
        return answer;
    }
    for (const auto& info : *infos) {
        const auto& description = info.description;
        answer.segments.push_back({info.segment,
                                   info.owner,
                                   description.tier,
                                   description.capacity_bytes,
                                   info.charged_bytes,
                                   info.retiring_bytes,
                                   info.replica_count,
                                   std::string(description.name),
                                   std::string(description.host_id),
                                   {description.endpoints.begin(), description.endpoints.end()}});
    }
    return answer;
}

StatsAnswer Client::stats(const CallOptions& options, CallReport& report) {
    StatsAnswer answer;
    wire::Buffer body;
    const auto encode = [](const wire::Prefix& prefix, wire::Writer& writer) {
        wire::encode_prefix(prefix, {}, writer);
    };
    answer.status = question(wire::Verb::kStats, encode, body, options, report);
    if (!wire::ok(answer.status)) return answer;
    const auto stats = wire::parse_stats(body);
    if (!stats) {
        answer.status = wire::Status::kRpcFail;
        return answer;
    }
    for (const auto& stat : *stats) answer.values.emplace_back(std::string(stat.name), stat.value);
    return answer;
}

}  // namespace mooncake::client
