// The client: what a program that uses the store calls. Every method blocks the calling thread until it is
// answered, its deadline passed, it was interrupted, or the client was closed; any number of threads may call
// at once.
//
// Answers are positional, one a key. Bytes go straight from and into the caller's memory: it must stay valid
// until the call returns and is not touched afterwards; when an answer is not OK, what the target holds is
// undefined. In a forked child every call answers CLOSED.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/core/get_batch.h"
#include "client/core/key_batches.h"
#include "client/core/put_batch.h"
#include "client/local_peers.h"
#include "client/options.h"
#include "client/transfer.h"
#include "client/view.h"
#include "wire/inspect.h"
#include "wire/tasks.h"

namespace mooncake::client {

struct CallOptions {
    std::uint64_t timeout_ms = 0;  // 0: Options::rpc_timeout_ms
    // Asked every kWakeMs while the call waits, on its thread; true ends it.
    std::function<bool()> interrupted;
};

// Beside the answers.
struct CallReport {
    bool was_interrupted = false;
    std::string why;  // what went wrong last, for the text of an error; empty if nothing did
};

struct PutOptions {
    std::uint8_t replica_count = 1;
    std::uint8_t flags = 0;  // wire::PutFlags
    std::uint32_t soft_pin_ms = 0;
    std::uint64_t ttl_ms = 0;
    std::vector<std::string> preferred;  // segments' names
};

struct ListedKey {
    std::string key;
    std::uint64_t size = 0;
    wire::PutId put_id = 0;
    std::uint8_t replica_count = 0;
    std::uint8_t flags = 0;
};
struct ListAnswer {
    wire::Status status = wire::Status::kClosed;
    std::uint64_t cursor = 0;  // 0: that was all
    std::vector<ListedKey> objects;
};

struct SegmentView {
    wire::SegmentId segment = 0;
    wire::SessionId owner = 0;
    wire::Tier tier = wire::Tier::kDram;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t charged_bytes = 0;
    std::uint64_t retiring_bytes = 0;
    std::uint64_t replica_count = 0;
    std::string name;
    std::string host_id;
    std::vector<std::string> endpoints;
};
struct SegmentsAnswer {
    wire::Status status = wire::Status::kClosed;
    std::vector<SegmentView> segments;
};
struct ExplainAnswer {
    wire::Status status = wire::Status::kRpcFail;  // of the question
    wire::WhyRecord why;
};
struct InspectAnswer {
    wire::Status status = wire::Status::kRpcFail;  // of the question
    wire::Buffer body;
};
struct TaskAnswer {
    wire::Status status = wire::Status::kRpcFail;  // of the question
    wire::TaskRecord record;                       // of create_task only the id
    std::string message;
};
struct StatsAnswer {
    wire::Status status = wire::Status::kClosed;
    std::vector<std::pair<std::string, std::uint64_t>> values;
};
struct MatchAnswer {
    wire::Status status = wire::Status::kClosed;
    std::uint32_t length = 0;
    wire::Status miss = wire::Status::kOk;
};

class Driver;
class Keeper;

// How often a read is begun anew because its value was replaced by a larger one between lookup and read.
inline constexpr int kReopensMax = 8;

// Values that were found, not yet read: their sizes are known, so that the caller can make room. Reading
// again looks for a value that is gone meanwhile, so a length may differ from what results() said before. One
// thread at a time.
class OpenValues {
  public:
    ~OpenValues();
    const std::vector<GetResult>& results() const { return batch_->results(); }
    const std::vector<std::string>& user_metadata() const { return batch_->user_metadata(); }
    // One target a key; those without data are left out. Once.
    void read_into(std::span<const Target> targets, const CallOptions& options, CallReport& report);

  private:
    friend class Client;
    OpenValues(std::shared_ptr<Driver> driver, std::unique_ptr<GetBatch> batch)
        : driver_(std::move(driver)), batch_(std::move(batch)) {}

    std::shared_ptr<Driver> driver_;
    std::unique_ptr<GetBatch> batch_;
};

// Whether these settings can be; `why` names the one that cannot and its value.
bool check(const Options& options, std::string& why);

class Client {
  public:
    using Keys = std::span<const std::string_view>;

    // nullptr: `why` names the address and the setting. interrupted: as in CallOptions.
    static std::unique_ptr<Client> connect(const Options& options, std::string& why, wire::Status& status,
                                           const std::function<bool()>& interrupted = {});
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // OK: stored; OBJECT_ALREADY_EXISTS. user_metadata and parents: one a key, or empty.
    std::vector<wire::Status> put_many(Keys keys, std::span<const Value> values, const PutOptions& put,
                                       std::span<const std::string_view> user_metadata,
                                       std::span<const std::uint64_t> parents, const CallOptions& options,
                                       CallReport& report);
    std::vector<GetResult> get_into_many(Keys keys, std::span<const Target> targets,
                                         const CallOptions& options, CallReport& report);
    // One range a key into the whole of its target; a key may be named several times. GetBatch::Options.
    std::vector<GetResult> get_ranges_many(Keys keys, std::span<const std::uint64_t> offsets,
                                           std::span<const Target> targets, const CallOptions& options,
                                           CallReport& report);
    // Values without a copy where their node's memory is mapped; of the others a private one. verify: mapped
    // values are read through and checked, too.
    struct Viewed {
        std::vector<GetResult> results;
        std::vector<View> views;  // one a key
    };
    Viewed view_many(Keys keys, bool verify, const CallOptions& options, CallReport& report);
    // `keys` must stay valid as long as the answer does. to_read: what is told may be what was found before
    // (Options::location_cache_max), as reading finds out; else it is what the master says now.
    std::unique_ptr<OpenValues> open(Keys keys, bool with_user_metadata, const CallOptions& options,
                                     CallReport& report, bool to_read = true);
    std::vector<wire::Status> exists_many(Keys keys, bool hold, const CallOptions& options,
                                          CallReport& report);
    // Where values lie; nothing is leased.
    std::vector<LocateBatch::Located> locate_many(Keys keys, const CallOptions& options, CallReport& report);
    MatchAnswer match_prefix(Keys keys, bool hold, const CallOptions& options, CallReport& report);
    std::vector<wire::Status> remove_many(Keys keys, bool force, const CallOptions& options,
                                          CallReport& report);
    // Of each value the copies on these segments (at most kAvoidMax), or all of it if it lies there alone.
    std::vector<wire::Status> remove_copies(Keys keys, std::span<const wire::SegmentId> segments,
                                            const CallOptions& options, CallReport& report);
    std::vector<wire::Status> touch_many(Keys keys, const CallOptions& options, CallReport& report);

    ListAnswer list(std::uint64_t cursor, std::uint32_t limit, std::string_view key_prefix,
                    const CallOptions& options, CallReport& report);
    // Why a key is not there, as the master sees it.
    ExplainAnswer explain(std::string_view key, const CallOptions& options, CallReport& report);
    // What the master knows of a key or name, and its story; the answer is packed (wire/inspect.h).
    InspectAnswer inspect(wire::Subject subject, std::string_view name, std::uint32_t limit,
                          const CallOptions& options, CallReport& report);
    // Have the master copy a value to those segments or, with a source, move it from there to one; and how
    // far that is.
    TaskAnswer create_task(wire::TaskType type, std::string_view key, std::string_view source,
                           std::span<const std::string> targets, const CallOptions& options,
                           CallReport& report);
    TaskAnswer query_task(wire::TaskId task, const CallOptions& options, CallReport& report);
    SegmentsAnswer segments(const CallOptions& options, CallReport& report);
    StatsAnswer stats(const CallOptions& options, CallReport& report);

    // Idempotent, from any thread: blocked calls return CLOSED within kWakeMs or so.
    void close();
    bool is_closed() const;
    bool is_connected() const;  // to the master, as the last heartbeat found
    bool is_over_grpc() const;  // rather than over the lane
    std::vector<LocalPeer> local_peers() const;
    LocationCounts location_counts() const;
    const Options& options() const;

  private:
    Client(std::shared_ptr<Driver> driver, std::unique_ptr<Keeper> keeper);
    std::vector<GetResult> read_at_once(const GetBatch::Options& what, Keys keys,
                                        std::span<const Target> targets, const CallOptions& options,
                                        CallReport& report);
    Viewed view_once(Keys keys, bool verify, std::uint64_t deadline_ms, const CallOptions& options,
                     CallReport& report);
    std::vector<wire::Status> key_batch(wire::Verb verb, std::uint32_t flags, Keys keys,
                                        const CallOptions& options, CallReport& report,
                                        std::span<const wire::SegmentId> segments = {});
    template <class Encode>
    wire::Status question(wire::Verb verb, Encode encode, wire::Buffer& body, const CallOptions& options,
                          CallReport& report, bool is_mutating = false);

    std::shared_ptr<Driver> driver_;
    std::unique_ptr<Keeper> keeper_;
};

}  // namespace mooncake::client
