// Replicas that were told to go and whose range the node has not reported freed: still charged. Until their
// node has confirmed they are found by their key: whoever removes it or puts another value promises that none
// of them is read any more.
#pragma once

#include <array>
#include <cstdint>

#include "metadata/flat_map.h"
#include "metadata/object.h"
#include "wire/control.h"
#include "wire/ids.h"

namespace mooncake::metadata {

// In shards, because a mass eviction puts a million here and no growth may take long.
class Retiring {
  public:
    static constexpr std::uint64_t kBytesMask = (std::uint64_t{1} << 61) - 1;

    struct Entry {
        std::uint64_t bytes : 61 = 0;
        // Of a committed value: its node has it until it confirms. Others it may have or not.
        std::uint64_t was_visible : 1 = 0;
        std::uint64_t is_tombstone : 1 = 0;  // among its segment's ended
        std::uint64_t is_confirmed : 1 = 0;  // by its node: readers keep the range, nobody new gets it
        SegmentIndex segment = 0;
        std::uint64_t subject : 48 = 0;  // of CopyEvents of its key; 0 = not known
        wire::ReplicaId next = 0;        // told before, of the same subject, unconfirmed
    };
    static_assert(sizeof(Entry) == 24);

    const Entry* find(wire::ReplicaId replica) const { return shards_[shard_index(replica)].find(replica); }
    void insert(wire::ReplicaId replica, Entry entry) {
        FlatMap<wire::ReplicaId>& heads = heads_[shard_index(entry.subject)];
        if (wire::ReplicaId* head = heads.find(entry.subject | kSubjectBit)) {
            entry.next = *head;
            *head = replica;
        } else {
            heads.insert(entry.subject | kSubjectBit, replica);
        }
        shards_[shard_index(replica)].insert(replica, entry);
        ++size_;
    }
    void erase(wire::ReplicaId replica) {
        confirm(replica);
        if (shards_[shard_index(replica)].erase(replica)) --size_;
    }

    // The last of its subject that no node has confirmed, or 0; earlier ones by Entry::next.
    wire::ReplicaId last_unconfirmed(std::uint64_t subject) const {
        const auto* head = heads_[shard_index(subject)].find(subject | kSubjectBit);
        return head == nullptr ? 0 : *head;
    }
    bool is_linked(wire::ReplicaId replica) const {
        wire::ReplicaId at = last_unconfirmed(find(replica)->subject);
        while (at != 0 && at != replica) at = find(at)->next;
        return at == replica;
    }
    void confirm(wire::ReplicaId replica) {
        Entry* entry = find_mutable(replica);
        if (entry == nullptr || entry->is_confirmed != 0) return;
        unlink(replica, *entry);
        entry->is_confirmed = 1;
        entry->next = 0;
    }
    void set_tombstone(wire::ReplicaId replica, bool is_tombstone) {
        find_mutable(replica)->is_tombstone = is_tombstone ? 1 : 0;
    }

    std::size_t size() const { return size_; }
    // As FlatMap::visit_some, over all shards.
    template <class Visit>
    std::uint64_t visit_some(std::uint64_t from, std::size_t count, Visit&& visit) const {
        const std::size_t index = from >> 32;
        const std::size_t next = shards_[index].visit_some(from & 0xFFFFFFFF, count, visit);
        if (next != 0) return std::uint64_t{index} << 32 | next;
        return index + 1 < shards_.size() ? std::uint64_t{index + 1} << 32 : 0;
    }
    template <class Visit>
    void visit_all(Visit&& visit) const {
        for (const auto& map : shards_) map.visit_all(visit);
    }

  private:
    static constexpr std::uint64_t kSubjectBit = std::uint64_t{1} << 48;  // no subject is 0 with it
    static std::size_t shard_index(std::uint64_t id) { return wire::mix64(id) >> 58; }

    Entry* find_mutable(wire::ReplicaId replica) { return shards_[shard_index(replica)].find(replica); }
    void unlink(wire::ReplicaId replica, const Entry& entry) {
        FlatMap<wire::ReplicaId>& heads = heads_[shard_index(entry.subject)];
        wire::ReplicaId* link = heads.find(entry.subject | kSubjectBit);
        if (*link == replica && entry.next == 0) {
            heads.erase(entry.subject | kSubjectBit);
            return;
        }
        while (*link != replica) link = &find_mutable(*link)->next;
        *link = entry.next;
    }

    std::array<FlatMap<Entry>, 64> shards_;
    std::array<FlatMap<wire::ReplicaId>, 64> heads_;  // by subject
    std::size_t size_ = 0;
};

}  // namespace mooncake::metadata
