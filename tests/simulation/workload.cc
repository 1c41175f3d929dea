#include "workload.h"

#include <algorithm>

namespace simulation {

namespace wire = mooncake::wire;
namespace client = mooncake::client;
using wire::Status;

namespace {

// A call wakes at its deadline, and what it waits for may be a slice longer (kWakeMs).
constexpr Ms kDeadlineSlackMs = 60;
constexpr std::size_t kHardPinnedKeys = 2;
constexpr std::uint64_t kCheckMs = 3'000;  // a call when all is well again

}  // namespace

Workload::Workload(World& world, Cluster& cluster, const Plan& plan, History& history, Journal& journal,
                   CallCounts& counts, std::uint64_t calls_max,
                   std::function<wire::Absence(const std::string&)> why)
    : world_(world),
      random_(world.random()),
      cluster_(cluster),
      plan_(plan),
      history_(history),
      journal_(journal),
      counts_(counts),
      calls_max_(calls_max),
      why_(std::move(why)),
      deadlines_(plan.deadlines()) {
    for (std::size_t i = 0; i < plan.keys; ++i) keys_.push_back("key" + std::to_string(i));
}

void Workload::start_callers(std::size_t index) {
    const auto& process = cluster_.clients()[index];
    for (std::size_t i = 0; i < plan_.callers; ++i) {
        world_.spawn(*process.host, "caller" + std::to_string(i),
                     [this, index, life = process.life, i] { caller(index, life, i); });
    }
}

std::size_t Workload::calls_under_way() const { return under_way_.size(); }

void Workload::check_deadlines() const {
    for (const auto& [number, call] : under_way_) {
        if (overdue_ms(*call.host, call.deadline_ms) > 0) {
            violated(call.what + " outlives its deadline, " + std::to_string(call.deadline_ms) +
                     " ms\nkey: " + call.key);
        }
    }
}

Ms Workload::overdue_ms(const Host& host, Ms deadline_ms) const {
    if (deadline_ms == kNever) return 0;
    const Ms until_ms = std::max(deadline_ms, host.went_on_ms) + kDeadlineSlackMs;
    return host.is_stopped || world_.now_ms() <= until_ms ? 0 : world_.now_ms() - until_ms;
}

void Workload::caller(std::size_t index, std::uint64_t life, std::size_t) {
    const auto& process = cluster_.clients()[index];
    while (!is_over() && process.is_running && process.life == life) {
        ++calls_;
        call_once(index);
        rest();
    }
}

// Mostly short; now and then until a deadline of the system, give or take a millisecond.
void Workload::rest() {
    if (random_.chance(300)) {
        world_.sleep(random_.pick(deadlines_) + random_.below(3) - 1);
    } else if (random_.chance(7'000)) {
        world_.sleep(random_.below(40));
    }
}

void Workload::call_once(std::size_t index) {
    const auto drawn = random_.below(100);
    if (drawn < 22) {
        Call call = begin(index, "put", 6);
        put(call, false);
    } else if (drawn < 32) {
        Call call = begin(index, "upsert", 3);
        put(call, true);
    } else if (drawn < 57) {
        Call call = begin(index, "get", 8);
        get(call, false);
    } else if (drawn < 65) {
        Call call = begin(index, "open", 8);
        get(call, true);
    } else if (drawn < 75) {
        Call call = begin(index, "exists", 10);
        exists(call);
    } else if (drawn < 83) {
        Call call = begin(index, "match_prefix", 8);
        match_prefix(call);
    } else if (drawn < 91) {
        Call call = begin(index, "remove", 3);
        remove(call, false);
    } else if (drawn < 97) {
        Call call = begin(index, "force_remove", 3);
        remove(call, true);
    } else if (drawn < 98) {
        Call call = begin(index, "touch", 4);
        touch(call);
    } else {
        Call call = begin(index, "task", 1);
        task(call);
    }
}

Workload::Call Workload::begin(std::size_t index, const char* kind, std::size_t keys_max) {
    std::vector<std::string> keys;
    const std::size_t count = random_.chance(3'500) ? 1 : random_.between(1, keys_max);
    // Neighbours often, so that prefixes exist; some keys more often than others.
    std::size_t at = random_.below(random_.chance(5'000) ? keys_.size() : 6);
    for (std::size_t i = 0; i < count; ++i) {
        keys.push_back(keys_[at % keys_.size()]);
        at = random_.chance(7'500) ? at + 1 : random_.below(keys_.size());
    }
    return begin_with(index, kind, std::move(keys),
                      random_.chance(1'500) ? random_.between(20, 600) : random_.between(2'000, 6'000));
}

Workload::Call Workload::begin_with(std::size_t index, const char* kind, std::vector<std::string> keys,
                                    std::uint64_t timeout_ms) {
    Call call;
    call.client = index;
    call.kind = kind;
    call.keys = std::move(keys);
    call.key_views.assign(call.keys.begin(), call.keys.end());
    call.options.timeout_ms = timeout_ms;
    auto& process = cluster_.clients()[index];
    call.life = process.life;
    call.began = world_.step();
    call.began_ms = world_.now_ms();
    call.deadline_ms = call.began_ms + call.options.timeout_ms;
    ++process.calls;
    call.number = ++last_number_;
    under_way_[call.number] = {
        process.host, call.deadline_ms,
        process.host->name + "'s " + call.kind + ", begun at step " + std::to_string(call.began) + ",",
        call.keys[0]};
    ++counts_.calls[call.kind];
    if (journal_.keeps_lines()) {
        journal_.line(process.host->name,
                      call.kind + " begins, " + std::to_string(call.options.timeout_ms) + " ms", call.keys);
    }
    return call;
}

bool Workload::end(const Call& call, const std::vector<Status>& statuses, const std::string& why) {
    auto& process = cluster_.clients()[call.client];
    --process.calls;
    under_way_.erase(call.number);
    const bool is_alive = process.is_running && process.life == call.life;
    std::string told = call.kind + " of step " + std::to_string(call.began) + " ends:";
    for (const Status status : statuses) {
        journal_.note(static_cast<std::uint64_t>(status));
        if (is_alive) ++counts_.answers[{call.kind, status}];
        if (journal_.keeps_lines()) told += std::string(" ") + wire::status_name(status);
    }
    if (journal_.keeps_lines()) {
        if (!why.empty()) told += " (" + why + ")";
        if (!is_alive) told += ", after its client died";
        journal_.line(process.host->name, told, call.keys);
    }
    if (!is_alive) {
        ++counts_.crashed_calls;
        return false;
    }
    if (const Ms overdue = overdue_ms(*process.host, call.deadline_ms); overdue > 0) {
        fail(call, 0, "it ended " + std::to_string(overdue + kDeadlineSlackMs) + " ms after its deadline");
    }
    return true;
}

void Workload::fail(const Call& call, std::size_t i, const std::string& why) {
    violated(cluster_.clients()[call.client].host->name + "'s " + call.kind + " of '" + call.keys[i] +
             "', begun at step " + std::to_string(call.began) + ": " + why + "\nkey: " + call.keys[i]);
}

std::uint64_t Workload::draw_size() {
    if (!plan_.value_sizes.empty()) return random_.pick(plan_.value_sizes);
    const auto drawn = random_.below(100);
    if (random_.chance(plan_.wide_value_in_10000)) {
        return plan_.capacities[0] > (10u << 20) ? random_.between(500'000, 1'600'000)
                                                 : random_.between(66'000, 110'000);
    }
    if (drawn < 8) return random_.below(20);
    if (drawn < 16) return 64 * random_.between(1, 4) + random_.below(3) - 1;
    return random_.between(1, plan_.value_bytes_max);
}

void Workload::put(Call& call, bool is_upsert) {
    client::PutOptions options;
    options.replica_count = static_cast<std::uint8_t>(random_.chance(3'500) ? random_.between(2, 3) : 1);
    if (is_upsert) options.flags |= wire::kPutUpsert;
    if (random_.chance(800)) options.flags |= wire::kPutSoftPin;
    if (random_.chance(1'500)) options.flags |= wire::kPutLocal;
    if (random_.chance(500)) options.ttl_ms = random_.between(200, 3'000);
    // The last few keys, always small, are pinned: more would fill the cluster for good.
    const bool is_pinned = random_.chance(300);
    if (is_pinned) {
        options.flags |= wire::kPutHardPin;
        options.ttl_ms = 0;
        call.keys = {keys_[keys_.size() - 1 - random_.below(kHardPinnedKeys)]};
        call.key_views.assign(call.keys.begin(), call.keys.end());
    }
    std::vector<iovec> pieces(call.keys.size());
    std::vector<client::Value> values(call.keys.size());
    std::vector<std::string> metadata;
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
        const std::string& bytes = values_.make(call.keys[i], is_pinned ? 200 : draw_size());
        pieces[i] = {const_cast<char*>(bytes.data()), bytes.size()};
        values[i] = {&pieces[i], 1, bytes.size()};
        metadata.push_back(std::to_string(values_.puts()));
    }
    const std::vector<std::string_view> metadata_views(metadata.begin(), metadata.end());
    client::CallReport report;
    const auto statuses = cluster_.clients()[call.client].client->put_many(
        call.key_views, values, options, metadata_views, {}, call.options, report);
    end(call, statuses, report.why);
}

void Workload::get(Call& call, bool opens) {
    if (opens) return read_into(call);
    std::vector<std::string> buffers(call.keys.size());
    std::vector<client::Target> targets(call.keys.size());
    const std::uint64_t capacity = plan_.capacities[0] > (10u << 20) ? 1'700'000 : 120'000;
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
        // Now and then too short for what may come.
        const std::uint64_t room = random_.chance(200) ? random_.below(300) : capacity;
        buffers[i] = buffers_.take(room);
        targets[i] = {reinterpret_cast<std::uint8_t*>(buffers[i].data()), room};
    }
    client::CallReport report;
    const auto results =
        cluster_.clients()[call.client].client->get_into_many(call.key_views, targets, call.options, report);
    std::vector<Status> statuses;
    for (const auto& result : results) statuses.push_back(result.status);
    if (!end(call, statuses, report.why)) return;
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (wire::ok(results[i].status)) {
            judge_hit(call, i, results[i].put_id, std::string_view(buffers[i]).substr(0, results[i].length));
        } else if (results[i].status == Status::kObjectNotFound) {
            judge_miss(call, i);
        }
        if (results[i].status == Status::kChecksumMismatch)
            fail(call, i, "its bytes do not match their checksum");
    }
    for (auto& buffer : buffers) buffers_.give_back(std::move(buffer));
}

// In two steps, as a caller that does not know the sizes: locate, make room, read.
void Workload::read_into(Call& call) {
    client::CallReport report;
    auto opened = cluster_.clients()[call.client].client->open(call.key_views, true, call.options, report);
    std::vector<std::string> buffers(call.keys.size());
    std::vector<client::Target> targets(call.keys.size());
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
        if (!wire::ok(opened->results()[i].status)) continue;
        const std::uint64_t room = opened->results()[i].length + 1;
        buffers[i] = buffers_.take(room);
        targets[i] = {reinterpret_cast<std::uint8_t*>(buffers[i].data()), room};
    }
    // Reading has a deadline of its own, from its beginning.
    const Ms rest_ms = random_.chance(2'000) ? random_.below(80) : 0;
    under_way_[call.number].deadline_ms = kNever;
    if (rest_ms > 0) world_.sleep(rest_ms);
    call.deadline_ms = world_.now_ms() + call.options.timeout_ms;
    under_way_[call.number].deadline_ms = call.deadline_ms;
    opened->read_into(targets, call.options, report);
    std::vector<Status> statuses;
    const auto results = opened->results();
    const auto all_metadata = opened->user_metadata();
    for (const auto& result : results) statuses.push_back(result.status);
    opened.reset();
    if (!end(call, statuses, report.why)) return;
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        const auto& result = results[i];
        if (wire::ok(statuses[i]) && targets[i].data != nullptr) {
            const auto bytes = std::string_view(buffers[i]).substr(0, result.length);
            judge_hit(call, i, result.put_id, bytes);
            const auto& metadata = all_metadata[i];
            if (bytes.size() >= 8 && metadata != std::to_string(values_.find(call.keys[i], bytes))) {
                fail(call, i, "its user metadata is '" + metadata + "', of another put");
            }
        } else if (statuses[i] == Status::kObjectNotFound) {
            judge_miss(call, i);
        }
        if (statuses[i] == Status::kChecksumMismatch) fail(call, i, "its bytes do not match their checksum");
    }
    for (auto& buffer : buffers) buffers_.give_back(std::move(buffer));
}

void Workload::judge_hit(const Call& call, std::size_t i, wire::PutId put_id, std::string_view bytes) {
    if (values_.find(call.keys[i], bytes) == 0) {
        fail(call, i, "its " + std::to_string(bytes.size()) + " bytes are those of no put of this key");
    }
    const auto why = history_.hit(call.keys[i], put_id, call.began, call.began_ms);
    if (!why.empty()) fail(call, i, "it must not be read: " + why);
    ++counts_.hits;
    counts_.hit_bytes += bytes.size();
}

void Workload::judge_miss(const Call& call, std::size_t i) {
    if (cluster_.had_two_masters(call.began_ms)) return;  // perhaps the old one's answer
    const auto why = history_.miss(call.keys[i], call.began, why_(call.keys[i]));
    if (!why.empty()) fail(call, i, "it must not miss: " + why);
}

void Workload::judge_presence(const Call& call, std::size_t i) {
    if (cluster_.had_two_masters(call.began_ms)) return;
    const auto why = history_.present(call.keys[i], call.began, call.began_ms);
    if (!why.empty()) fail(call, i, "it must not be there: " + why);
}

void Workload::exists(Call& call) {
    client::CallReport report;
    const auto statuses = cluster_.clients()[call.client].client->exists_many(
        call.key_views, random_.chance(7'000), call.options, report);
    if (!end(call, statuses, report.why)) return;
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        if (wire::ok(statuses[i])) {
            judge_presence(call, i);
        } else if (statuses[i] == Status::kObjectNotFound) {
            judge_miss(call, i);
        }
    }
}

void Workload::match_prefix(Call& call) {
    client::CallReport report;
    const auto answer = cluster_.clients()[call.client].client->match_prefix(
        call.key_views, random_.chance(7'000), call.options, report);
    if (!end(call, {answer.status}, report.why) || !wire::ok(answer.status)) return;
    for (std::size_t i = 0; i < answer.length; ++i) {
        judge_presence(call, i);
    }
    if (answer.length < call.keys.size() && answer.miss == Status::kObjectNotFound)
        judge_miss(call, answer.length);
}

void Workload::remove(Call& call, bool is_forced) {
    client::CallReport report;
    const auto statuses =
        cluster_.clients()[call.client].client->remove_many(call.key_views, is_forced, call.options, report);
    end(call, statuses, report.why);
}

void Workload::touch(Call& call) {
    client::CallReport report;
    const auto statuses =
        cluster_.clients()[call.client].client->touch_many(call.key_views, call.options, report);
    end(call, statuses, report.why);
}

// Has the master copy or move the value, anywhere; how it ends is nobody's promise, but it must not cost the
// value (judge_miss).
void Workload::task(Call& call) {
    client::Client& client = *cluster_.clients()[call.client].client;
    client::CallReport report;
    const auto found = client.segments(call.options, report);
    std::vector<Status> statuses{found.status};
    // Three calls, each with the whole time.
    const auto begin_next = [&] {
        call.deadline_ms = world_.now_ms() + call.options.timeout_ms;
        under_way_[call.number].deadline_ms = call.deadline_ms;
    };
    if (found.segments.size() > 1) {
        begin_next();
        const auto any = [&] { return random_.pick(found.segments).name; };
        const bool moves = random_.chance(5'000);
        const std::vector<std::string> targets(moves ? 1 : random_.between(1, 2), any());
        const auto created =
            client.create_task(moves ? wire::TaskType::kMove : wire::TaskType::kCopy, call.keys[0],
                               moves ? any() : std::string(), targets, call.options, report);
        statuses.push_back(created.status);
        if (wire::ok(created.status)) {
            begin_next();
            statuses.push_back(client.query_task(created.record.task, call.options, report).status);
        }
    }
    end(call, statuses, report.why);
}

void Workload::check_pool(std::size_t index) {
    client::Client& client = *cluster_.clients()[index].client;
    client::CallReport report;
    Call look = begin_with(index, "exists", keys_, kCheckMs);
    const auto statuses = client.exists_many(look.key_views, false, look.options, report);
    end(look, statuses, report.why);
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        if (!wire::ok(statuses[i]) && statuses[i] != Status::kObjectNotFound) {
            fail(look, i, std::string("all is well again, but it is ") + wire::status_name(statuses[i]));
        }
    }
    const std::string key = "new" + std::to_string(index);
    const std::string& bytes = values_.make(key, 100);
    Call put = begin_with(index, "put", {key}, kCheckMs);
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    const client::Value value{&piece, 1, bytes.size()};
    const auto stored = client.put_many(put.key_views, {&value, 1}, {}, {}, {}, put.options, report);
    end(put, stored, report.why);
    if (!wire::ok(stored[0])) {
        fail(put, 0, std::string("all is well again, but it answers ") + wire::status_name(stored[0]));
    }
    Call get = begin_with(index, "get", {key}, kCheckMs);
    std::string buffer = buffers_.take(bytes.size());
    const client::Target target{reinterpret_cast<std::uint8_t*>(buffer.data()), bytes.size()};
    const auto read = client.get_into_many(get.key_views, {&target, 1}, get.options, report);
    end(get, {read[0].status}, report.why);
    if (!wire::ok(read[0].status)) {
        fail(get, 0,
             std::string("it was stored just now, but get answers ") + wire::status_name(read[0].status));
    }
    judge_hit(get, 0, read[0].put_id, std::string_view(buffer).substr(0, read[0].length));
    buffers_.give_back(std::move(buffer));
    keys_.push_back(key);  // to be removed with the others
}

void Workload::remove_everything() {
    for (int round = 0;; ++round) {
        Call call = begin_with(0, "force_remove", keys_, kCheckMs);
        client::CallReport report;
        const auto statuses =
            cluster_.clients()[0].client->remove_many(call.key_views, true, call.options, report);
        end(call, statuses, report.why);
        const bool is_answered = std::all_of(statuses.begin(), statuses.end(), [](Status status) {
            return wire::ok(status) || status == Status::kObjectNotFound;
        });
        if (is_answered) return;
        if (round > 5) violated("the keys cannot be removed although all faults are over");
    }
}

}  // namespace simulation
