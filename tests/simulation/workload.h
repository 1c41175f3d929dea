// What the callers of each client do: calls of every kind, over a few keys, at moments on and beside every
// deadline. Judges each answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cluster.h"
#include "history.h"
#include "journal.h"
#include "plan.h"
#include "values.h"

namespace simulation {

struct CallCounts {
    std::map<std::string, std::uint64_t> calls;  // by kind
    std::map<std::pair<std::string, mooncake::wire::Status>, std::uint64_t>
        answers;  // by kind, of single keys
    std::uint64_t hits = 0;
    std::uint64_t hit_bytes = 0;
    std::uint64_t crashed_calls = 0;  // their client died meanwhile
};

class Workload {
  public:
    Workload(World& world, Cluster& cluster, const Plan& plan, History& history, Journal& journal,
             CallCounts& counts, std::uint64_t calls_max,
             std::function<mooncake::wire::Absence(const std::string&)> why);

    // On a fiber of the client's host, each time that it has connected.
    void start_callers(std::size_t client);
    bool is_over() const { return calls_ >= calls_max_ || is_stopped; }
    std::size_t calls_under_way() const;
    // Calls that are still under way after their deadline.
    void check_deadlines() const;

    // When all is well again, from a fiber of the client: it stores, it reads, and no key is stuck.
    void check_pool(std::size_t client);
    // From a fiber of the first client: everything goes, and is gone.
    void remove_everything();
    // Another kind of calls than its share of them ends.
    bool is_stopped = false;

  private:
    using Status = mooncake::wire::Status;
    struct Call {
        std::size_t client = 0;
        std::uint64_t life = 0;
        std::uint64_t number = 0;
        std::uint64_t began = 0;
        Ms began_ms = 0;
        Ms deadline_ms = 0;
        std::string kind;
        std::vector<std::string> keys;
        std::vector<std::string_view> key_views;
        mooncake::client::CallOptions options;
    };

    void caller(std::size_t client, std::uint64_t life, std::size_t number);
    void rest();
    void call_once(std::size_t client);
    void put(Call& call, bool is_upsert);
    void get(Call& call, bool opens);
    void read_into(Call& call);
    void exists(Call& call);
    void match_prefix(Call& call);
    void remove(Call& call, bool is_forced);
    void touch(Call& call);
    void task(Call& call);

    Call begin(std::size_t client, const char* kind, std::size_t keys_max);
    Call begin_with(std::size_t client, const char* kind, std::vector<std::string> keys,
                    std::uint64_t timeout_ms);
    // True: its client lives, the answer counts.
    bool end(const Call& call, const std::vector<Status>& statuses, const std::string& why);
    void judge_hit(const Call& call, std::size_t i, mooncake::wire::PutId put_id, std::string_view bytes);
    void judge_miss(const Call& call, std::size_t i);
    void judge_presence(const Call& call, std::size_t i);
    // Of what has outlived its deadline, by how long; a process that was stopped meanwhile sees it when it
    // goes on.
    Ms overdue_ms(const Host& host, Ms deadline_ms) const;
    void fail(const Call& call, std::size_t i, const std::string& why);
    std::uint64_t draw_size();

    World& world_;
    Random& random_;
    Cluster& cluster_;
    const Plan& plan_;
    History& history_;
    Journal& journal_;
    CallCounts& counts_;
    const std::uint64_t calls_max_;
    std::function<mooncake::wire::Absence(const std::string&)> why_;
    std::uint64_t calls_ = 0;
    std::uint64_t last_number_ = 0;
    const std::vector<Ms> deadlines_;
    Values values_;
    Buffers buffers_;
    std::vector<std::string> keys_;
    struct UnderWay {
        const Host* host = nullptr;
        Ms deadline_ms = 0;
        std::string what;  // and its first key
        std::string key;
    };
    std::map<std::uint64_t, UnderWay> under_way_;  // by number
};

}  // namespace simulation
