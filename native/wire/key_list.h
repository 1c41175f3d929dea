// The packed list of keys that every batch verb carries: u32 count, count u16 lengths, then the bytes of all
// keys.
//
// A length outside 1..kKeyBytesMax is not a malformed frame: that key alone is answered INVALID_KEY, so that
// one bad key never shifts or drops the others.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "wire/bytes.h"
#include "wire/limits.h"

namespace mooncake::wire {

// A view into a parsed frame; valid as long as the frame's bytes are. Walk it forwards with Cursor.
class KeyList {
  public:
    KeyList() = default;

    static KeyList parse(Reader& reader) {
        KeyList list;
        const auto count = reader.get<std::uint32_t>();
        if (count > kBatchKeysMax) reader.fail();
        list.lengths_ = reader.bytes(reader.ok() ? std::size_t{count} * 2 : 0);
        if (!reader.ok()) return {};
        list.count_ = count;
        std::size_t total = 0;
        for (std::uint32_t i = 0; i < count; ++i) total += list.length(i);
        list.bytes_ = reader.bytes(total);
        return reader.ok() ? list : KeyList{};
    }

    std::uint32_t count() const { return count_; }

    // Walks the keys in order; position() is the index of the key that next() gives.
    class Cursor {
      public:
        explicit Cursor(const KeyList& list) : list_(&list) {}
        std::uint32_t position() const { return index_; }
        bool done() const { return index_ >= list_->count_; }
        std::string_view next() {
            const std::size_t length = list_->length(index_++);
            const std::string_view key = as_text(list_->bytes_.subspan(offset_, length));
            offset_ += length;
            return key;
        }

      private:
        const KeyList* list_;
        std::uint32_t index_ = 0;
        std::size_t offset_ = 0;
    };

  private:
    std::size_t length(std::uint32_t index) const {
        std::uint16_t value;
        std::memcpy(&value, lengths_.data() + std::size_t{index} * 2, 2);
        return value;
    }

    Bytes lengths_;
    Bytes bytes_;
    std::uint32_t count_ = 0;
};

constexpr bool is_valid_key(std::string_view key) { return !key.empty() && key.size() <= kKeyBytesMax; }

inline void encode_keys(std::span<const std::string_view> keys, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(keys.size()));
    for (const auto key : keys) writer.put(static_cast<std::uint16_t>(key.size()));
    for (const auto key : keys) writer.bytes(as_bytes(key));
}

}  // namespace mooncake::wire
