// Sessions, the tenants they belong to, and each session's memory of its answered requests. Knows nothing of
// keys, puts or segments beyond their ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metadata/flat_map.h"
#include "wire/bytes.h"
#include "wire/control.h"
#include "wire/ids.h"
#include "wire/status.h"

namespace mooncake::metadata {

// Tenants by number, counted by the sessions and records that name them. The number follows from the name:
// what is remembered by the hash of (tenant, key) beyond the last use (ends of keys, dead keys, the journal)
// must neither become another tenant's nor be lost to this one when it comes back.
class Tenants {
  public:
    std::uint32_t acquire(std::string_view name);
    void acquire(std::uint32_t tenant) { ++slots_.at(tenant).uses; }
    void release(std::uint32_t tenant);
    const std::string& name(std::uint32_t tenant) const { return slots_.at(tenant).name; }
    std::vector<std::uint32_t> all() const { return some(count()); }
    std::vector<std::uint32_t> some(std::size_t count_max) const;
    std::size_t count() const { return by_name_.size(); }
    std::uint64_t uses(std::uint32_t tenant) const { return slots_.at(tenant).uses; }

  private:
    struct Slot {
        std::string name;
        std::uint64_t uses = 0;
    };
    std::unordered_map<std::uint32_t, Slot> slots_;
    std::unordered_map<std::string, std::uint32_t> by_name_;
};

// The last answers of one session by sequence, so that a repeated request has the effect of one.
class ReplayWindow {
  public:
    struct Answer {
        wire::Verb verb = wire::Verb::kPing;
        bool done = false;  // false: the first request of this sequence is still on its way
        wire::Status status = wire::Status::kOk;
        wire::Buffer body;
        std::vector<wire::ReplicaId> retired;
    };

    const Answer* find(std::uint64_t sequence) const;
    // It left the window, or never came while the window went by: nobody can tell any more.
    bool is_stale(std::uint64_t sequence) const { return sequence <= forgotten_; }
    void begin(std::uint64_t sequence, wire::Verb verb) {
        answers_.try_emplace(sequence).first->second.verb = verb;
    }
    // Forgets the lowest sequences beyond the bounds.
    void finish(std::uint64_t sequence, Answer answer, std::size_t count_max, std::size_t bytes_max);
    std::size_t bytes() const { return bytes_; }

  private:
    static std::size_t cost(const Answer& answer) {
        return sizeof(Answer) + answer.body.capacity() + answer.retired.capacity() * sizeof(wire::ReplicaId);
    }

    std::map<std::uint64_t, Answer> answers_;
    std::uint64_t forgotten_ = 0;
    std::size_t bytes_ = 0;
};

struct Session {
    wire::SessionId id = 0;
    wire::Uuid process{};
    std::string name;
    std::string host_id;
    std::uint32_t tenant = 0;
    std::uint64_t heard_ms = 0;  // the last heartbeat, report or open
    bool was_attached = false;   // had a connection once: grace applies
    bool attached = false;
    std::uint64_t detached_ms = 0;  // since when without one
    bool ending = false;            // closed or expired; its puts and segments are being taken down
    std::uint32_t put_head = 0;     // its unfinished puts, a list in Puts; 0 = none
    ReplayWindow replays;
    wire::InventoryTotals inventory;  // of a node's inventory under way

    // Of a node: how far its reports are compared (reconcile.cc). The mark of its segments, the one told to
    // it, and the last retire command whose confirmation was carried out whole.
    static constexpr std::uint64_t kBetweenCommands = ~std::uint64_t{0};
    wire::ReplicaId mark = 0;
    wire::ReplicaId told_settled_id = 0;
    std::uint64_t confirmed_command_id = 0;
};

class Sessions {
  public:
    explicit Sessions(Tenants& tenants) : tenants_(tenants) {}

    // nullptr for one that is unknown or ending.
    Session* find(wire::SessionId id);
    const Session* find(wire::SessionId id) const { return const_cast<Sessions*>(this)->find(id); }
    Session* find_ending(wire::SessionId id);
    const Session* find_ending(wire::SessionId id) const {
        return const_cast<Sessions*>(this)->find_ending(id);
    }
    Session* find_process(const wire::Uuid& process, std::string_view tenant);
    Session& open(wire::SessionId id, const wire::Uuid& process, std::string_view name,
                  std::string_view host_id, std::string_view tenant);
    // From now on requests of it find no session.
    void begin_end(Session& session);
    void erase(wire::SessionId id);

    // Ended ones included; the oldest of those that are ending, 0 = none.
    std::size_t count() const { return by_id_.size(); }
    const std::vector<wire::SessionId>& ending() const { return ending_; }
    template <class Visit>
    void visit_all(Visit&& visit) const {
        for (const auto& [id, session] : by_id_) visit(*session);
    }

  private:
    static std::string process_key(const wire::Uuid& process, std::string_view tenant);

    Tenants& tenants_;
    std::unordered_map<wire::SessionId, std::unique_ptr<Session>> by_id_;
    std::unordered_map<std::string, wire::SessionId> by_process_;  // those not ending
    std::vector<wire::SessionId> ending_;
};

}  // namespace mooncake::metadata
