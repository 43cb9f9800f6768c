// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <rondo/store.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "python/core/call.h"
#include "python/core/error.h"
#include "python/core/module.h"

namespace rondo::python {

namespace {

using std::chrono::milliseconds;

using Text = std::string Options::*;
using List = std::vector<std::string> Options::*;
using Number = int Options::*;
using Bytes = std::size_t Options::*;
using OnOff = Switch Options::*;
using MaybeOnOff = std::optional<bool> Options::*;
using Time = milliseconds Options::*;

struct Row {
  std::string_view name;
  std::variant<Text, List, Number, Bytes, OnOff, MaybeOnOff, Time> field;
};
const Row rows[] = {{"rank", &Options::rank},
                    {"size", &Options::size},
                    {"rendezvous", &Options::rendezvous},
                    {"secret", &Options::secret},
                    {"connect_deadline", &Options::connect_deadline},
                    {"deadline", &Options::deadline},
                    {"transports", &Options::transports},
                    {"interfaces", &Options::interfaces},
                    {"connections", &Options::connections},
                    {"host", &Options::host},
                    {"ranks_on_host", &Options::ranks_on_host},
                    {"wait", &Options::wait},
                    {"reproducible", &Options::reproducible},
                    {"checksum", &Options::checksum},
                    {"integrity", &Options::integrity},
                    {"algorithm", &Options::algorithm},
                    {"constants", &Options::constants},
                    {"measure", &Options::measure},
                    {"segment_bytes", &Options::segment_bytes},
                    {"depth", &Options::depth},
                    {"staging_bytes", &Options::staging_bytes},
                    {"metrics", &Options::metrics},
                    {"metrics_period", &Options::metrics_period},
                    {"metrics_labels", &Options::metrics_labels}};

// The value of one option, as its field has it.
struct Value {
  std::string name;
  py::handle value;

  [[noreturn]] void refuse_it(const std::string& wanted) const {
    refuse(py::str("connect: {} is {!r}: give {}").format(name, value, wanted));
  }
  long integer(py::handle number, long least, long most) const {
    const long is = PyLong_Check(number.ptr()) ? PyLong_AsLong(number.ptr()) : -1;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (is < least || is > most)
      Value{name, number}.refuse_it("an integer from " + std::to_string(least) + " to " +
                                    std::to_string(most));
    return is;
  }
  // Text, or for lists of names their text joined by commas.
  std::string text() const {
    if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
    if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value))
      refuse_it("text, or for transports and interfaces a list of texts");
    return py::cast<std::string>(py::str(",").attr("join")(value));
  }

  void put(std::string& field) const { field = text(); }
  void put(std::vector<std::string>& field) const {
    for (const py::handle item : py::str(text()).attr("split")(","))
      if (py::len(item) != 0) field.push_back(py::cast<std::string>(item));
  }
  void put(int& field) const {
    field =
        static_cast<int>(integer(value, name == "rank" ? 0 : 1, std::numeric_limits<int>::max()));
  }
  void put(std::size_t& field) const {
    field = static_cast<std::size_t>(integer(value, 1, std::numeric_limits<long>::max()));
  }
  void put(Switch& field) const { field = py::cast<bool>(value); }
  void put(std::optional<bool>& field) const { field = py::cast<bool>(value); }
  void put(milliseconds& field) const {
    field = std::max(milliseconds_from(value, name.c_str()), milliseconds{1});
  }
  void put_ports(Options& options) const {
    if (!py::isinstance<py::sequence>(value) || py::len(value) != 2)
      refuse_it("the first and the last port");
    const auto both = py::reinterpret_borrow<py::sequence>(value);
    options.port_first = static_cast<std::uint16_t>(integer(both[0], 1, 65535));
    options.port_last = static_cast<std::uint16_t>(integer(both[1], 1, 65535));
  }
  // As rondo.PlanConstants: a tuple of two links and a number, a link of three numbers.
  void put_constants(Options& options) const {
    using Link = std::tuple<double, double, double>;
    try {
      const auto [host, network, reduce] = py::cast<std::tuple<Link, Link, double>>(value);
      const auto link = [](const Link& costs) {
        return PlanLinkCosts{std::get<0>(costs), std::get<1>(costs), std::get<2>(costs)};
      };
      options.plan_constants = {link(host), link(network), reduce};
    } catch (const py::cast_error&) {
      refuse_it("a rondo.PlanConstants");
    }
  }
};

// A store of the program (rondo.Store in Python). Rondo calls it on the thread that connects,
// without Python's lock.
class PythonStore final : public Store {
 public:
  explicit PythonStore(py::handle store) : store_(store) {}

  void put(std::string_view key, std::string_view value) override {
    guarded("refused to put", key, [&] { store_.attr("put")(key, value); });
  }
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    std::string text;
    guarded("could not get", key, [&] {  // text or bytes
      text = py::cast<std::string>(store_.attr("get")(key, std::max(left.count(), 0.0)));
    });
    return text;
  }
  // The first exception of the store other than TimeoutError.
  py::error_already_set* failure() { return failure_ ? &*failure_ : nullptr; }

 private:
  template <class Function>
  void guarded(const char* what, std::string_view key, const Function& function) {
    const py::gil_scoped_acquire locked;
    try {
      return function();
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_TimeoutError))
        throw Error(Errc::deadline_exceeded,
                    "the program's store has no '" + std::string(key) + "'");
      if (!failure_) failure_.emplace(error);
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      failure_.emplace();
    }
    throw Error(Errc::rendezvous, std::string("the program's store ") + what + " '" +
                                      std::string(key) + "': it raised an exception");
  }

  py::handle store_;
  std::optional<py::error_already_set> failure_{};
};

}  // namespace

std::shared_ptr<Session> connect(const py::dict& given) {
  Options options;
  options.interrupted = handler_raises;
  std::optional<PythonStore> store;
  for (const auto& [name, handle] : given) {
    if (handle.is_none()) continue;
    const Value value{py::cast<std::string>(name), handle};
    const auto row = std::ranges::find(rows, value.name, &Row::name);
    if (row != std::end(rows))
      std::visit([&](const auto& field) { value.put(options.*field); }, row->field);
    else if (value.name == "ports")
      value.put_ports(options);
    else if (value.name == "plan_constants")
      value.put_constants(options);
    else if (value.name == "store")
      options.store = &store.emplace(handle);
    else
      throw py::type_error("connect() has no option '" + value.name + "'");
  }
  try {
    return open(interruptible([&] {
      const Unlocked unlocked;
      return Communicator::connect(options);
    }));
  } catch (const Error& error) {
    py::error_already_set* const cause = store ? store->failure() : nullptr;
    if (cause == nullptr) throw;
    if (!cause->matches(PyExc_Exception)) throw *cause;  // KeyboardInterrupt and the like
    py::raise_from(*cause, py::type::of(exception_of(error)).ptr(), error.what());
    throw py::error_already_set();
  }
}

}  // namespace rondo::python
