// SPDX-License-Identifier: Apache-2.0
//
// rondo._core: Rondo's C API for Python, and the sampler. Users see rondo/_communicator.py and
// rondo/torch, which document it.
#include <pybind11/stl.h>
#include <rondo/c.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python/core/call.h"
#include "python/core/connect.h"
#include "python/core/memory.h"
#include "python/core/operations.h"
#include "python/core/sampler.h"
#include "python/core/work.h"

namespace rondo::python {

namespace {

using Shared = const std::shared_ptr<Session>&;

// Text that the C API writes.
template <class Write>
std::string text_of(Session& session, const Write& write) {
  std::array<char, 4096> text{};
  check(call_inside(session,
                    [&](rondo_communicator* c) { return write(c, text.data(), text.size()); }));
  return text.data();
}

std::string describe(Session& session, py::handle operation, std::size_t count, py::handle type) {
  const rondo_collective what = collective_from(operation);
  const rondo_dtype of = dtype_from(type);
  return text_of(session, [=](auto* c, char* text, std::size_t capacity) {
    return rondo_describe(c, what, count, of, text, capacity);
  });
}

std::string algorithm(Session& session, py::handle operation, std::size_t count, py::handle type) {
  const rondo_collective what = collective_from(operation);
  const rondo_dtype of = dtype_from(type);
  return text_of(session, [=](auto* c, char* text, std::size_t capacity) {
    return rondo_algorithm(c, what, count, of, text, capacity);
  });
}

std::string describe_peer(Session& session, int peer) {
  return text_of(session, [=](auto* c, char* text, std::size_t capacity) {
    return rondo_describe_peer(c, peer, text, capacity);
  });
}

std::string address(Session& session) {
  return text_of(session, [](auto* c, char* text, std::size_t capacity) {
    return rondo_address(c, text, capacity);
  });
}

std::vector<int> local_ranks(Session& session) {
  if (session.is_closed()) refuse_closed();
  std::vector<int> ranks(static_cast<std::size_t>(rondo_size(session.get())));
  std::size_t count = 0;
  check(call_inside(session, [&](rondo_communicator* c) {
    return rondo_local_ranks(c, ranks.data(), ranks.size(), &count);
  }));
  ranks.resize(count);
  return ranks;
}

// In the order of rondo.Statistics: times in seconds, and pairs of calls and seconds by rank.
py::tuple statistics(Session& session) {
  rondo_statistics s{};
  s.bytes = sizeof(s);
  check(call_inside(session, [&](rondo_communicator* c) { return rondo_get_statistics(c, &s); }));
  std::vector<rondo_late_rank> late(static_cast<std::size_t>(rondo_size(session.get())));
  check(call_inside(session, [&](rondo_communicator* c) {
    return rondo_get_late_ranks(c, late.data(), late.size());
  }));
  const auto seconds = [](std::uint64_t time) { return static_cast<double>(time) / 1e9; };
  py::list late_ranks;
  for (const rondo_late_rank& one : late)
    late_ranks.append(py::make_tuple(one.calls, seconds(one.waited_ns)));
  return py::make_tuple(s.operations, s.frames_sent, s.frames_received, s.bytes_sent,
                        s.bytes_received, s.staging_bytes, s.failures, s.segments_sent,
                        s.segments_resent, seconds(s.waited_ranks_ns),
                        seconds(s.waited_transfer_ns), seconds(s.waited_gpu_ns),
                        seconds(s.waited_messages_ns), late_ranks);
}

// In the order of rondo.PlanConstants.
py::tuple constants(Session& session) {
  rondo_constants c{};
  c.bytes = sizeof(c);
  check(call_inside(session, [&](rondo_communicator* of) { return rondo_get_constants(of, &c); }));
  const auto link = [](const rondo_link_costs& costs) {
    return py::make_tuple(costs.latency_s, costs.seconds_per_byte, costs.frame_s);
  };
  return py::make_tuple(link(c.host), link(c.network), c.reduce_seconds_per_byte);
}

// Null where this rank is in no part. It has a place in the order of bulk operations.
std::shared_ptr<Session> split(Session& session, int color, int key) {
  rondo_communicator* part = nullptr;
  const Outcome outcome = call_inside(session, [&](rondo_communicator* c) {
    std::unique_lock lock(session.starting(Lane::bulk), std::defer_lock);
    if (!session.in_child()) lock.lock();
    return rondo_split(c, color, key, &part);
  });
  if (PyErr_Occurred() != nullptr) {  // of a handler of a signal
    rondo_destroy(part);
    throw py::error_already_set();
  }
  check(outcome);
  return part != nullptr ? std::make_shared<Session>(part) : nullptr;
}

// Nothing where the communicator is closed: abort is for a program that is giving up.
void abort_all(Session& session, const std::string& text) {
  const Unlocked unlocked;
  const Session::Inside inside(session);
  if (inside.is_open()) rondo_abort_text(session.get(), RONDO_ABORTED, text.c_str());
}

void define_communicator(py::module_& module) {
  Communicator communicator(module, "Communicator");
  communicator.def("close", &Session::close)
      .def_property_readonly("closed", &Session::is_closed)
      .def("abort", &abort_all)
      .def("split", &split)
      .def("describe", &describe)
      .def("algorithm", &algorithm)
      .def("describe_peer", &describe_peer)
      .def("address", &address)
      .def("local_ranks", &local_ranks)
      .def("statistics", &statistics)
      .def("constants", &constants)
      .def("rank",
           [](Session& s) { return s.is_closed() ? refuse_closed(), 0 : rondo_rank(s.get()); })
      .def("size",
           [](Session& s) { return s.is_closed() ? refuse_closed(), 0 : rondo_size(s.get()); });
  define_operations(communicator);
}

bool wait(Work& work, py::handle timeout) {
  if (timeout.is_none()) return work.wait({});
  return work.wait(std::chrono::milliseconds{milliseconds_from(timeout, "timeout")});
}

py::object await(const py::object& work) {
  return py::module_::import("rondo._communicator").attr("awaited")(work).attr("__await__")();
}

void define_work(py::module_& module) {
  py::options options;
  options.disable_function_signatures();
  py::class_<Work>(module, "Work",
                   "An operation under way. Several threads may use it.\n\n"
                   "Dropping it neither waits nor cancels: the operation goes on, and its buffers\n"
                   "are kept until it ends. It may outlive its communicator.")
      .def("wait", &wait, py::arg("timeout") = py::none(),
           "wait(timeout=None) -> bool\n\n"
           "Waits until the operation ends, for at most `timeout` seconds (None: as long as it "
           "takes).\n\nReturns True when it has ended and False when it still runs. Raises the "
           "rondo.Error of an\noperation that failed, each time. This thread does the work of the "
           "operation meanwhile.")
      .def("__await__", &await,
           "__await__()\n\n"
           "`await work` waits like wait(), in a coroutine of asyncio. Others run meanwhile.")
      .def_property_readonly("done", &Work::done,
                             "Whether the operation has ended, also with an error.")
      .def_property_readonly("source", &Work::source,
                             "The rank from which a receive got its message. None while it runs, "
                             "after a failure\nand for other operations.")
      .def_property_readonly("error", &Work::error,
                             "The rondo.Error that wait() raises; None while the operation runs "
                             "and after a success.");
}

void define_memory(py::module_& module) {
  py::class_<Memory>(module, "Memory", py::buffer_protocol(),
                     "Memory from Communicator.allocate(), as a writable buffer of bytes.")
      .def_buffer([](Memory& memory) {
        return py::buffer_info(static_cast<unsigned char*>(memory.data()),
                               static_cast<py::ssize_t>(memory.bytes()));
      })
      .def(py::init<Session&, std::size_t>())
      .def("__len__", &Memory::bytes);
  py::class_<Registration>(module, "Registration",
                           "Memory that the transports know, from Communicator.register().")
      .def(py::init<Session&, py::handle>())
      .def("close", &Registration::close,
           "Ends the registration, once. No operation may use the memory meanwhile.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Registration& self, const py::args&) { self.close(); });
}

}  // namespace

}  // namespace rondo::python

PYBIND11_MODULE(_core, module) {
  namespace python = rondo::python;
  module.doc() = "Rondo's C API for the package rondo. Not for programs.";
  python::define_work(module);
  python::define_communicator(module);
  python::define_memory(module);
  python::define_sampler(module);
  module.def("connect", &python::connect);
  module.def("close_all", &python::close_all_sessions);
  module.def("version", &rondo_version);
  module.def("status_name",
             [](int status) { return rondo_status_name(static_cast<rondo_status>(status)); });
  python::py::module_::import("atexit").attr("register")(module.attr("close_all"));
}
