// SPDX-License-Identifier: Apache-2.0
//
// rondo._core: Rondo for Python. Users see rondo/_communicator.py and rondo/torch, which document
// it.
#include "python/core/module.h"

#include <pybind11/stl.h>
#include <rondo/c.h>
#include <rondo/version.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "python/core/call.h"
#include "python/core/element.h"
#include "python/core/error.h"
#include "python/core/view.h"
#include "python/core/work.h"

namespace rondo::python {

// The memory of operations that nobody waits for goes with the session.
std::shared_ptr<Session> open(Communicator communicator) {
  auto* const session = new Session(std::move(communicator), "the communicator is closed");
  return Opened<Session>::add({session, [](Session* last) {
                                 {
                                   const Unlocked unlocked(!last->has_closed());
                                   delete last;
                                 }
                                 settle_kept();
                               }});
}

namespace {

void close(Session& session) {
  if (session.holds_this_thread())
    refuse(
        "close: a handler of a signal cannot close the communicator while split() waits: raise an "
        "exception there, and close afterwards");
  {
    const Unlocked unlocked;
    session.close("another thread closed the communicator");
  }
  settle_kept();
}

// Returns function(communicator), without Python's lock.
template <class Function>
auto ask(Session& session, const Function& function) {
  const Unlocked unlocked;
  return session.use(function);
}

std::string describe(Session& session, py::handle operation, std::size_t count, py::handle type) {
  return ask(session, [=, what = collective_from(operation), of = dtype_from(type)](auto& c) {
    return c.describe(what, count, of);
  });
}

std::string algorithm(Session& session, py::handle operation, std::size_t count, py::handle type) {
  return ask(session, [=, what = collective_from(operation), of = dtype_from(type)](auto& c) {
    return c.algorithm(what, count, of);
  });
}

std::string describe_peer(Session& session, int peer) {
  return ask(session, [=](auto& c) { return c.describe_peer(peer); });
}

std::string address(Session& session) {
  return ask(session, [](auto& c) { return c.address(); });
}

std::vector<int> local_ranks(Session& session) {
  return ask(session, [](auto& c) {
    const auto ranks = c.local_ranks();
    return std::vector<int>(ranks.begin(), ranks.end());
  });
}

// In the order of rondo.Statistics: times in seconds, and pairs of calls and seconds by rank.
py::tuple statistics(Session& session) {
  const Statistics s = ask(session, [](auto& c) { return c.statistics(); });
  const auto seconds = [](std::chrono::duration<double> time) { return time.count(); };
  const auto waited = [&](WaitCause cause) {
    return seconds(s.waited[static_cast<std::size_t>(cause)]);
  };
  py::list late_ranks;
  for (const LateRank& one : s.late_ranks)
    late_ranks.append(py::make_tuple(one.calls, seconds(one.waited)));
  return py::make_tuple(s.operations, s.frames_sent, s.frames_received, s.bytes_sent,
                        s.bytes_received, s.staging_bytes, s.failures, s.segments_sent,
                        s.segments_resent, waited(WaitCause::ranks), waited(WaitCause::transfer),
                        waited(WaitCause::gpu), waited(WaitCause::messages), late_ranks);
}

// Paths may have bytes that are not UTF-8.
py::bytes dump(Session& session, const std::string& path) {
  return ask(session, [&](auto& c) { return c.dump(path); });
}

// In the order of rondo.PlanConstants.
py::tuple constants(Session& session) {
  const PlanConstants c = ask(session, [](auto& of) { return of.constants(); });
  const auto link = [](const PlanLinkCosts& costs) {
    return py::make_tuple(costs.latency_s, costs.seconds_per_byte, costs.frame_s);
  };
  return py::make_tuple(link(c.host), link(c.network), c.reduce_seconds_per_byte);
}

// Null where this rank is in no part. It has a place in the order of bulk operations.
std::shared_ptr<Session> split(Session& session, int color, int key) {
  auto part = interruptible([&] {
    const Unlocked unlocked;
    return session.start(Lane::bulk, [=](Communicator& c) { return c.split(color, key); });
  });
  return part ? open(std::move(*part)) : nullptr;
}

void define_communicator(py::module_& module) {
  py::class_<Session, std::shared_ptr<Session>> communicator(module, "Communicator");
  communicator.def("close", &close)
      .def_property_readonly("closed", &Session::is_closed)
      .def("abort", &Session::abort, py::call_guard<Unlocked>())
      .def("split", &split)
      .def("describe", &describe)
      .def("algorithm", &algorithm)
      .def("describe_peer", &describe_peer)
      .def("address", &address)
      .def("local_ranks", &local_ranks)
      .def("statistics", &statistics)
      .def("dump", &dump)
      .def("constants", &constants)
      .def("rank", &Session::rank)
      .def("size", &Session::size);
  define_operations(communicator);
}

bool wait(Work& work, py::handle timeout) {
  if (timeout.is_none()) return work.wait({});
  return work.wait(milliseconds_from(timeout, "timeout"));
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

// Memory of Communicator.allocate(), as a writable buffer of bytes. It may outlive its
// communicator.
struct Allocated {
  // A buffer of Python needs an address even if it is empty.
  Allocated(Session& session, std::size_t most)
      : bytes(most),
        memory(ask(session, [&](auto& c) { return c.allocate(std::max<std::size_t>(most, 1)); })) {}
  std::size_t bytes;
  Memory memory;
};

// Memory of a Python object that the transports know until close().
struct Registered {
  Registered(Session& session, py::handle object)
      : view(object, "register", "data", Access::write, std::nullopt),
        known(ask(session, [&](auto& c) {
          const Buffer all = view.buffer();
          return c.register_memory(all.data, all.count * size_of(all.type));
        })) {}
  void close() {
    known = {};
    const View last = std::move(view);
  }
  View view;  // the registration ends before it does
  Registration known;
};

void define_memory(py::module_& module) {
  py::class_<Allocated>(module, "Memory", py::buffer_protocol(),
                        "Memory from Communicator.allocate(), as a writable buffer of bytes.")
      .def_buffer([](Allocated& one) {
        return py::buffer_info(static_cast<unsigned char*>(one.memory.data()),
                               static_cast<py::ssize_t>(one.bytes));
      })
      .def(py::init<Session&, std::size_t>())
      .def("__len__", [](const Allocated& one) { return one.bytes; });
  py::class_<Registered>(module, "Registration",
                         "Memory that the transports know, from Communicator.register().")
      .def(py::init<Session&, py::handle>())
      .def("close", &Registered::close,
           "Ends the registration, once. No operation may use the memory meanwhile.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Registered& self, const py::args&) { self.close(); });
}

void close_all() {
  for (const auto& session : Opened<Session>::all()) close(*session);
}

void raise_error(std::exception_ptr thrown) {
  const auto set = [](const Error& error) {
    const py::object exception = exception_of(error);
    PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
  };
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const Error& error) {
    set(error);
  } catch (const std::system_error& error) {
    set({Errc::system, error.what()});
  } catch (const std::bad_alloc&) {
    set({Errc::system, "out of memory"});
  }
}

}  // namespace

}  // namespace rondo::python

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  namespace python = rondo::python;
  module.doc() = "Rondo's library for the package rondo. Not for programs.";
  py::register_local_exception_translator(&python::raise_error);
  python::define_work(module);
  python::define_communicator(module);
  python::define_memory(module);
  python::define_sampler(module);
  module.def("connect", &python::connect);
  module.def("close_all", &python::close_all);
  module.def("version", &rondo::version);
  module.def("status_name",
             [](int status) { return rondo_status_name(static_cast<rondo_status>(status)); });
  py::module_::import("atexit").attr("register")(module.attr("close_all"));
}
