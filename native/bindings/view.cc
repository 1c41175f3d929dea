// _core.View: a value that is looked at where it lies, by the buffer protocol, read-only. Its memory stays as
// long as the view is not released; whoever views it by the buffer protocol, or took it by DLPack, holds it.
#include "client/view.h"

#include <nanobind/ndarray.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/view.h"

namespace mooncake::bindings {

namespace nb = nanobind;

using namespace nanobind::literals;

namespace {

constexpr int kHostDevice = 1;      // kDLCPU
constexpr long kReadOnlySince = 1;  // the major version of DLPack with a flag for it

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
    return nb::inst_ptr<ViewHandle>(self)->fill(*buffer, self, flags);
}

void release_buffer(PyObject* self, Py_buffer*) { nb::inst_ptr<ViewHandle>(self)->give_back(); }

[[noreturn]] void refuse(const char* why) {
    PyErr_SetString(PyExc_BufferError, why);
    throw nb::python_error();
}

template <class... Access>
nb::object capsule_of(const void* data, std::size_t size, const nb::object& owner,
                      const nb::object& max_version) {
    using Array = nb::ndarray<nb::array_api, Access..., std::uint8_t, nb::ndim<1>, nb::device::cpu>;
    // The array holds the owner until the consumer has freed what it made of the capsule.
    const nb::object array = nb::cast(Array(const_cast<void*>(data), {size}, owner));
    return array.attr("__dlpack__")("max_version"_a = max_version);
}

nb::object dlpack(nb::handle self, const nb::object& stream, const nb::object& max_version,
                  const nb::object& dl_device, const nb::object& copy) {
    if (!stream.is_none()) refuse("a view is memory of the host, for which there is no stream");
    if (!dl_device.is_none() && !dl_device.equal(nb::make_tuple(kHostDevice, 0))) {
        refuse("a view is memory of the host (dl_device (1, 0)); take it there and copy it to the device");
    }
    // Refused once the view is released, or in a forked child; counted as every buffer is.
    const nb::object held = nb::steal(PyMemoryView_FromObject(self.ptr()));
    if (!held.is_valid()) throw nb::python_error();
    const auto& view = nb::inst_ptr<ViewHandle>(self)->view();
    if (copy.is(nb::handle(Py_True))) {
        const nb::object bytes =
            nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(view.size())));
        if (!bytes.is_valid()) throw nb::python_error();
        char* data = PyByteArray_AS_STRING(bytes.ptr());
        {
            const GilReleased released;
            if (view.size() > 0) std::memcpy(data, view.data(), view.size());
        }
        return capsule_of(data, view.size(), bytes, max_version);
    }
    const bool knows_read_only = nb::isinstance<nb::tuple>(max_version) && nb::len(max_version) == 2 &&
                                 nb::cast<long>(max_version[0]) >= kReadOnlySince;
    if (!knows_read_only) {
        refuse(
            "a view is read-only, which DLPack can say from version 1.0 on, and this consumer asks for an "
            "older "
            "one; use numpy.frombuffer(view, dtype) or torch.frombuffer(view, dtype=...), or ask for a copy");
    }
    return capsule_of<nb::ro>(view.data(), view.size(), held, max_version);
}

}  // namespace

int ViewHandle::fill(Py_buffer& buffer, PyObject* owner, int flags) {
    buffer.obj = nullptr;
    const char* refusal = view_.is_released() ? "the view is released"
                          : !view_.is_of_this_process()
                              ? "the view belongs to the parent of this forked process"
                          : (flags & PyBUF_WRITABLE) != 0 ? "a view is read-only"
                                                          : nullptr;
    if (refusal != nullptr) {
        PyErr_SetString(PyExc_BufferError, refusal);
        return -1;
    }
    if (PyBuffer_FillInfo(&buffer, owner, const_cast<std::uint8_t*>(view_.data()),
                          static_cast<Py_ssize_t>(view_.size()), 1, flags) != 0) {
        return -1;
    }
    ++buffers_;
    return 0;
}

void ViewHandle::release() {
    if (buffers_ > 0) {
        const auto why = std::to_string(buffers_) + " buffers of this view are in use; drop them first";
        PyErr_SetString(PyExc_BufferError, why.c_str());
        throw nb::python_error();
    }
    view_.release();
}

void bind_view(nb::module_& module) {
    std::array<PyType_Slot, 3> slots = {{{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                         {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                         {0, nullptr}}};
    nb::class_<ViewHandle>(module, "View", nb::type_slots(slots.data()))
        .def("release", &ViewHandle::release)
        .def_prop_ro("nbytes", [](const ViewHandle& self) { return self.view().size(); })
        .def_prop_ro("is_mapped", [](const ViewHandle& self) { return self.view().is_mapped(); })
        .def_prop_ro("is_released", [](const ViewHandle& self) { return self.view().is_released(); })
        .def("__dlpack__", dlpack, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
             "dl_device"_a = nb::none(), "copy"_a = nb::none())
        .def("__dlpack_device__", [](nb::handle) { return nb::make_tuple(kHostDevice, 0); })
        .def("__len__", [](const ViewHandle& self) { return self.view().size(); })
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def("__exit__", [](ViewHandle& self, const nb::args&) { self.release(); });
}

// The default for a pointer would leave it to nobody.
nb::object to_view(client::View view) {
    return nb::cast(new ViewHandle(std::move(view)), nb::rv_policy::take_ownership);
}

}  // namespace mooncake::bindings
