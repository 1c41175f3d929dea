#include "metadata/key_table.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>

#include "wire/control.h"

namespace mooncake::metadata {

namespace {

__extension__ using Uint128 = unsigned __int128;

std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
    const Uint128 product = static_cast<Uint128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

constexpr std::uint64_t kOddA = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
constexpr std::uint64_t kOddB = 0xD6E8FEB86659FD93ULL;

constexpr unsigned kFirstBits = 4;
constexpr std::size_t kLineBytes = 64;

}  // namespace

// Seeded, so that nobody can choose keys that all fall on one slot.
std::uint64_t KeyTable::hash(std::uint32_t tenant, std::string_view key) const {
    std::uint64_t state = seed_ ^ (tenant * kOddA);
    const char* at = key.data();
    std::size_t left = key.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        state = folded_product(state ^ word, kOddB) + kOddA;
    }
    std::uint64_t tail = 0;
    if (left > 0) std::memcpy(&tail, at, left);
    state = folded_product(state ^ tail, kOddA ^ (std::uint64_t{key.size()} << 32));
    return wire::mix64(state ^ seed_);
}

void KeyTable::prefetch_slot(std::uint64_t hash) const {
    const Shard& shard = shards_[shard_of(hash)];
    if (shard.slots != nullptr) __builtin_prefetch(&shard.slots[shard.home(fingerprint_of(hash))]);
}

// The whole record: the key is compared to its last byte.
void KeyTable::prefetch_record(std::uint64_t hash, std::size_t key_bytes) const {
    const Shard& shard = shards_[shard_of(hash)];
    if (shard.slots == nullptr) return;
    const std::uint32_t fingerprint = fingerprint_of(hash);
    for (std::size_t at = shard.home(fingerprint); shard.slots[at].ref != 0; at = (at + 1) & shard.mask()) {
        if (shard.slots[at].fingerprint != fingerprint) continue;
        const char* record = reinterpret_cast<const char*>(&object(shard.slots[at].ref));
        __builtin_prefetch(record);
        for (std::size_t line = kLineBytes; line < sizeof(Object) + key_bytes; line += kLineBytes) {
            __builtin_prefetch(record + line);
        }
        return;
    }
}

Ref KeyTable::find(std::uint64_t hash, std::uint32_t tenant, std::string_view key) const {
    const Shard& shard = shards_[shard_of(hash)];
    if (shard.slots == nullptr) return 0;
    const std::uint32_t fingerprint = fingerprint_of(hash);
    for (std::size_t at = shard.home(fingerprint); shard.slots[at].ref != 0; at = (at + 1) & shard.mask()) {
        if (shard.slots[at].fingerprint != fingerprint) continue;
        const Object& candidate = object(shard.slots[at].ref);
        if (candidate.tenant == tenant && candidate.key() == key) return shard.slots[at].ref;
    }
    return 0;
}

Ref KeyTable::insert(std::uint64_t hash, std::uint32_t tenant, std::string_view key) {
    Shard& shard = shards_[shard_of(hash)];
    if ((shard.size + 1) * 4 > shard.slot_count() * 3) grow(shard_of(hash));
    const Ref ref = records_.allocate(record_bytes(key.size()));
    Object& record = object(ref);
    record = Object{};
    record.tenant = tenant;
    record.key_bytes = static_cast<std::uint16_t>(key.size());
    std::memcpy(&record + 1, key.data(), key.size());
    place(shard, {fingerprint_of(hash), ref});
    ++shard.size;
    ++size_;
    return ref;
}

void KeyTable::erase(Ref ref) {
    const Object& record = object(ref);
    const std::uint64_t hashed = hash(record.tenant, record.key());
    Shard& shard = shards_[shard_of(hashed)];
    std::size_t hole = shard.home(fingerprint_of(hashed));
    while (shard.slots[hole].ref != ref) {
        assert(shard.slots[hole].ref != 0);
        hole = (hole + 1) & shard.mask();
    }
    // Later entries of the run move up, so that no probe ever meets a gap.
    for (std::size_t next = (hole + 1) & shard.mask(); shard.slots[next].ref != 0;
         next = (next + 1) & shard.mask()) {
        const std::size_t home = shard.home(shard.slots[next].fingerprint);
        if (((next - home) & shard.mask()) >= ((next - hole) & shard.mask())) {
            shard.slots[hole] = shard.slots[next];
            hole = next;
        }
    }
    shard.slots[hole] = Slot{};
    --shard.size;
    --size_;
    records_.free(ref, record_bytes(record.key_bytes));
}

std::uint64_t KeyTable::scan(std::uint64_t cursor, std::size_t limit, std::size_t slots_max,
                             std::vector<Ref>& found) const {
    const std::size_t start = found.size();
    std::vector<Slot> bucket;
    for (std::size_t index = cursor >> 32; index < kShards; ++index, cursor = std::uint64_t{index} << 32) {
        const Shard& shard = shards_[index];
        if (shard.size == 0) continue;
        const auto from = static_cast<std::uint32_t>(cursor);
        for (std::size_t home = shard.home(from); home < shard.slot_count(); ++home) {
            const std::uint64_t bucket_start = std::uint64_t{home} << (32 - shard.bits);
            const std::uint64_t here =
                std::uint64_t{index} << 32 | (bucket_start < from ? from : bucket_start);
            if (slots_max-- == 0) return here;
            bucket.clear();
            for (std::size_t at = home; shard.slots[at].ref != 0; at = (at + 1) & shard.mask()) {
                const Slot& slot = shard.slots[at];
                if (shard.home(slot.fingerprint) == home && slot.fingerprint >= from) bucket.push_back(slot);
            }
            std::sort(bucket.begin(), bucket.end(),
                      [](const Slot& a, const Slot& b) { return a.fingerprint < b.fingerprint; });
            for (std::size_t i = 0; i < bucket.size(); ++i) {
                // Equal fingerprints go out together: the cursor cannot stand between them.
                const bool fresh = i == 0 || bucket[i].fingerprint != bucket[i - 1].fingerprint;
                if (fresh && found.size() - start >= limit) {
                    return std::uint64_t{index} << 32 | bucket[i].fingerprint;
                }
                found.push_back(bucket[i].ref);
            }
        }
    }
    return 0;
}

void KeyTable::place(Shard& shard, Slot slot) {
    std::size_t at = shard.home(slot.fingerprint);
    while (shard.slots[at].ref != 0) at = (at + 1) & shard.mask();
    shard.slots[at] = slot;
}

void KeyTable::grow(std::size_t index) {
    Shard& shard = shards_[index];
    const Shard old = shard;
    shard.bits = old.slots == nullptr ? kFirstBits : old.bits + 1;
    Piece& piece = pieces_[shard.bits][index / kShardsAPiece];
    const std::size_t piece_bytes = (kShardsAPiece << shard.bits) * sizeof(Slot);
    if (piece.shard_count++ == 0) piece.memory = new_memory(piece_bytes);
    shard.slots = reinterpret_cast<Slot*>(piece.memory.get()) + ((index % kShardsAPiece) << shard.bits);
    std::uninitialized_fill_n(shard.slots, shard.slot_count(), Slot{});
    slot_bytes_ += (shard.slot_count() - old.slot_count()) * sizeof(Slot);
    if (old.slots == nullptr) return;
    for (std::size_t at = 0; at < old.slot_count(); ++at) {
        if (old.slots[at].ref != 0) place(shard, old.slots[at]);
    }
    Piece& left = pieces_[old.bits][index / kShardsAPiece];
    if (--left.shard_count > 0) return;
    left.memory.reset();
    if (prefer_large_pages_ != nullptr) prefer_large_pages_(piece.memory.get(), piece_bytes);
}

}  // namespace mooncake::metadata
