// The index: (tenant, key) to the record of its object. Owns the records' memory and the slots; knows nothing
// of what a record means beyond its key.
//
// 256 shards of open addressing, so that growing one stalls nobody for long. A slot is 8 bytes: a 32-bit
// fingerprint and the record's reference. The slots of 32 shards of one size lie side by side in one piece of
// memory: they grow at about the same time, each for itself into its place in the next piece, and the last
// one to go gives the piece back. A key's place follows from its fingerprint alone, in order: shards
// grow without reading records, and a walk in the order of hashes meets every key that stays exactly once,
// whatever is inserted, erased or grown meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "metadata/arena.h"
#include "metadata/object.h"

namespace mooncake::metadata {

class KeyTable {
  public:
    explicit KeyTable(std::uint64_t seed, PreferLargePages prefer_large_pages = nullptr)
        : seed_(seed), prefer_large_pages_(prefer_large_pages), records_(prefer_large_pages) {}

    std::uint64_t hash(std::uint32_t tenant, std::string_view key) const;

    // For batches: first touch the slots of all keys, then the records, then find each.
    void prefetch_slot(std::uint64_t hash) const;
    void prefetch_record(std::uint64_t hash, std::size_t key_bytes) const;

    Ref find(std::uint64_t hash, std::uint32_t tenant, std::string_view key) const;
    // A record with the key, all else zero; the key must be new.
    Ref insert(std::uint64_t hash, std::uint32_t tenant, std::string_view key);
    void erase(Ref ref);

    Object& object(Ref ref) const { return records_.at<Object>(ref); }

    // Appends at most about `limit` records in the order of hashes, examining at most `slots_max` slots;
    // answers where to go on, 0 = that was all.
    std::uint64_t scan(std::uint64_t cursor, std::size_t limit, std::size_t slots_max,
                       std::vector<Ref>& found) const;

    std::size_t size() const { return size_; }
    // What an insert of a key of that length may add, growth of a shard aside.
    static std::size_t record_bytes(std::size_t key_bytes) { return sizeof(Object) + key_bytes; }
    std::size_t bytes() const { return records_.used_bytes() + slot_bytes_; }

  private:
    static constexpr unsigned kShardBits = 8;
    static constexpr std::size_t kShards = std::size_t{1} << kShardBits;
    static constexpr std::size_t kShardsAPiece = 32;

    struct Slot {
        std::uint32_t fingerprint = 0;
        Ref ref = 0;  // 0 = empty
    };
    struct Shard {
        Slot* slots = nullptr;  // in the piece of its size; null: none yet
        std::size_t size = 0;
        unsigned bits = 0;  // log2 of the number of slots

        std::size_t slot_count() const { return slots == nullptr ? 0 : std::size_t{1} << bits; }
        std::size_t mask() const { return (std::size_t{1} << bits) - 1; }
        std::size_t home(std::uint32_t fingerprint) const { return fingerprint >> (32 - bits); }
    };

    // The slots of those of 32 neighbours that have 2^bits of them; what the others would have there is not
    // touched. Of all 256 would fill large pages sooner, and giving so much back at once took 4 ms.
    struct Piece {
        Memory memory;
        std::size_t shard_count = 0;
    };

    static std::size_t shard_of(std::uint64_t hash) { return hash >> (64 - kShardBits); }
    static std::uint32_t fingerprint_of(std::uint64_t hash) {
        return static_cast<std::uint32_t>(hash >> (32 - kShardBits));
    }
    static void place(Shard& shard, Slot slot);
    void grow(std::size_t index);

    std::uint64_t seed_;
    const PreferLargePages prefer_large_pages_;
    std::array<Shard, kShards> shards_;
    std::array<std::array<Piece, kShards / kShardsAPiece>, 33> pieces_;  // by bits
    Arena records_;
    std::size_t size_ = 0;
    std::size_t slot_bytes_ = 0;
};

}  // namespace mooncake::metadata
