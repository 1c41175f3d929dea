// _core.BufferHandle: memory of its own that a value is read into, without being zeroed first. Freed with its
// last reference; whoever views it by the buffer protocol holds one.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "bindings/bindings.h"

namespace mooncake::bindings {

using namespace nanobind::literals;
namespace nb = nanobind;

namespace {

// Of a cache line, and of every dtype's item.
constexpr std::size_t kAlignment = 64;

class BufferHandle {
  public:
    explicit BufferHandle(std::size_t size) : size_(static_cast<Py_ssize_t>(size)) {
        if (size > PTRDIFF_MAX - kAlignment) throw std::bad_alloc();
        const auto rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
        memory_.reset(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded));
        if (!memory_) throw std::bad_alloc();
    }

    [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.get()); }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(size_); }

    int fill(Py_buffer& view, PyObject* owner, int flags) {
        if (PyBuffer_FillInfo(&view, owner, memory_.get(), size_, 0, flags) != 0) return -1;
        if (view.format != nullptr) view.format = kFormat.data();
        ++views_;
        return 0;
    }
    void release_view() { --views_; }
    [[nodiscard]] bool is_viewed() const { return views_ > 0; }

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    // Signed bytes, as Mooncake's handles say. Not const because Py_buffer's field is not.
    static inline std::array<char, 2> kFormat = {'b', '\0'};

    std::unique_ptr<void, Free> memory_;
    Py_ssize_t size_;
    std::size_t views_ = 0;  // with the GIL held
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    return nb::inst_ptr<BufferHandle>(self)->fill(*view, self, flags);
}

void release_buffer(PyObject* self, Py_buffer*) { nb::inst_ptr<BufferHandle>(self)->release_view(); }

}  // namespace

void bind_buffer_handle(nb::module_& module) {
    std::array<PyType_Slot, 3> slots = {{{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                         {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                         {0, nullptr}}};
    nb::class_<BufferHandle>(module, "BufferHandle", nb::type_slots(slots.data()))
        .def(nb::init<std::size_t>(), "size"_a)
        .def("ptr", &BufferHandle::address)
        .def("size", &BufferHandle::size)
        .def_prop_ro("is_viewed", &BufferHandle::is_viewed)
        .def("__len__", &BufferHandle::size);
}

}  // namespace mooncake::bindings
