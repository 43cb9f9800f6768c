// SPDX-License-Identifier: Apache-2.0
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "python/torch/backend.h"
#include "python/torch/batch_norm.h"

PYBIND11_MODULE(_c, module) {
  using rondo::python::Backend;
  module.doc() = "Rondo's backend for torch.distributed: use it by its name, \"rondo\".";
  // new_group calls it on ranks outside the new group where the default group has a device.
  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module, "Backend")
      .def(
          "perform_nocolor_split", [](Backend&, const py::object&) {}, py::arg("device"))
      .def(
          "allocate_tensor",
          [](Backend& backend, std::int64_t size, at::ScalarType dtype, at::Device device) {
            return backend.allocate(size, at::TensorOptions(device).dtype(dtype));
          },
          py::arg("size"), py::kw_only(), py::arg("dtype"), py::arg("device"),
          py::call_guard<py::gil_scoped_release>());
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& group,
         const std::vector<std::int64_t>& global_ranks) {
        return rondo::python::interruptible(
            [&] { return Backend::create(store, rank, size, timeout, group, global_ranks); });
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("group"),
      py::arg("global_ranks"), py::call_guard<py::gil_scoped_release>());
  rondo::python::bind_batch_norm(module);
  module.def("shutdown_all", &rondo::python::GroupSession::close_all,
             py::call_guard<py::gil_scoped_release>());
}
