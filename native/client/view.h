// Values that a program looks at without having copied them: bytes of a node's memory under a reference of
// the node's or, where that cannot be, a private copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/core/get_batch.h"
#include "net/view_link.h"

namespace mooncake::client {

// One value. What data() points to stays as it is until release(), also when the node has died.
class View {
  public:
    View() = default;
    View(std::shared_ptr<net::ViewLink> link, std::uint64_t reference, const std::uint8_t* data,
         std::uint64_t size)
        : link_(std::move(link)), reference_(reference), data_(data), size_(size) {}
    explicit View(std::uint64_t size)
        : copy_(std::make_unique_for_overwrite<std::uint8_t[]>(size + 1)), data_(copy_.get()), size_(size) {}
    View(View&& other) noexcept { swap(other); }
    View& operator=(View&& other) noexcept {
        View moved(std::move(other));
        swap(moved);
        return *this;
    }
    ~View() { release(); }

    const std::uint8_t* data() const { return data_; }
    std::uint64_t size() const { return size_; }
    bool is_mapped() const { return link_ != nullptr; }
    bool is_released() const { return data_ == nullptr; }
    // In a forked child a mapped value is not there: to touch it would end the process.
    bool is_of_this_process() const { return !link_ || link_->is_of_this_process(); }

    void release() {
        if (const auto link = std::move(link_)) link->release(reference_);
        link_ = nullptr;
        copy_.reset();
        data_ = nullptr;
        size_ = 0;
    }
    std::uint8_t* room() { return copy_.get(); }
    void shorten(std::uint64_t size) { size_ = size; }

  private:
    void swap(View& other) noexcept {
        std::swap(link_, other.link_);
        std::swap(reference_, other.reference_);
        std::swap(copy_, other.copy_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    std::shared_ptr<net::ViewLink> link_;
    std::uint64_t reference_ = 0;
    std::unique_ptr<std::uint8_t[]> copy_;
    const std::uint8_t* data_ = nullptr;
    std::uint64_t size_ = 0;
};

// The views of one call, filled by its transfers.
class Views {
  public:
    // sizes: as they were found. verify: mapped values are read through and compared with their checksums.
    Views(std::span<const GetResult> found, bool verify) : verify_(verify), views_(found.size()) {
        for (const auto& result : found) sizes_.push_back(result.length);
    }
    bool verifies() const { return verify_; }
    void put(std::size_t index, View view) { views_[index] = std::move(view); }
    // Where the bytes of a value go that is not mapped.
    std::uint8_t* room(std::size_t index) {
        if (views_[index].room() == nullptr) views_[index] = View(sizes_[index]);
        return views_[index].room();
    }
    // Once the call is over: what was read. A copy of a value that was replaced by a shorter one is longer.
    View take(std::size_t index, const GetResult& result) {
        View view = std::move(views_[index]);
        if (view.size() > result.length) view.shorten(result.length);
        return view;
    }

  private:
    const bool verify_;
    std::vector<View> views_;
    std::vector<std::uint64_t> sizes_;
};

}  // namespace mooncake::client
