// SPDX-License-Identifier: Apache-2.0
#include "python/core/connect.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "python/core/call.h"
#include "python/core/store.h"

namespace rondo::python {

namespace {

struct Text {
  std::string_view name;
  const char* rondo_options::*field;
};
constexpr Text texts[] = {{"rendezvous", &rondo_options::rendezvous},
                          {"secret", &rondo_options::secret},
                          {"transports", &rondo_options::transports},
                          {"interfaces", &rondo_options::interfaces},
                          {"algorithm", &rondo_options::algorithm},
                          {"host", &rondo_options::host},
                          {"constants", &rondo_options::constants},
                          {"integrity", &rondo_options::integrity},
                          {"wait", &rondo_options::wait},
                          {"metrics", &rondo_options::metrics},
                          {"metrics_labels", &rondo_options::metrics_labels}};

struct Number {
  std::string_view name;
  int rondo_options::*field;
  int least;
};
constexpr Number numbers[] = {{"rank", &rondo_options::rank, 0},
                              {"size", &rondo_options::size, 1},
                              {"connections", &rondo_options::connections, 1},
                              {"depth", &rondo_options::depth, 1},
                              {"ranks_on_host", &rondo_options::ranks_on_host, 1}};

struct Flag {
  std::string_view name;
  int rondo_options::*field;
};
constexpr Flag flags[] = {{"reproducible", &rondo_options::reproducible},
                          {"checksum", &rondo_options::checksum},
                          {"measure", &rondo_options::measure}};

struct Bytes {
  std::string_view name;
  std::size_t rondo_options::*field;
};
constexpr Bytes sizes[] = {{"segment_bytes", &rondo_options::segment_bytes},
                           {"staging_bytes", &rondo_options::staging_bytes}};

struct Seconds {
  std::string_view name;
  std::uint64_t rondo_options::*field;
};
constexpr Seconds times[] = {{"connect_deadline", &rondo_options::connect_deadline_ms},
                             {"deadline", &rondo_options::deadline_ms},
                             {"metrics_period", &rondo_options::metrics_period_ms}};

template <class Row, std::size_t count>
const Row* find(const Row (&table)[count], std::string_view name) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const Row& row) { return row.name == name; });
  return found != std::end(table) ? found : nullptr;
}

[[noreturn]] void refuse_value(std::string_view name, py::handle value, const std::string& wanted) {
  refuse(py::str("connect: {} is {!r}: give {}").format(std::string(name), value, wanted));
}

long integer_from(std::string_view name, py::handle value, long least, long most) {
  const long number = PyLong_Check(value.ptr()) ? PyLong_AsLong(value.ptr()) : -1;
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  if (number < least || number > most)
    refuse_value(name, value,
                 "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

// Runs Python's handlers of signals, which Python does on its main thread only. An error that one
// raises stays set until connect() or split() has ended.
int handler_raises(void*) {
  if (::gettid() != ::getpid()) return 0;
  const py::gil_scoped_acquire locked;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0 ? 1 : 0;
}

// Text, or for lists of names their text joined by commas.
std::string text_from(std::string_view name, py::handle value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value))
    refuse_value(name, value, "text, or for transports and interfaces a list of texts");
  return py::cast<std::string>(py::str(",").attr("join")(value));
}

// The options for C, with the texts that they point to.
class Options {
 public:
  Options() { check(Outcome::of(rondo_options_init(&options_))); }

  void set(std::string_view name, py::handle value) {
    if (const Text* const text = find(texts, name)) {
      options_.*text->field = texts_.emplace_back(text_from(name, value)).c_str();
    } else if (const Number* const number = find(numbers, name)) {
      options_.*number->field = static_cast<int>(
          integer_from(name, value, number->least, std::numeric_limits<int>::max()));
    } else if (const Flag* const flag = find(flags, name)) {
      options_.*flag->field = py::cast<bool>(value) ? 1 : 0;
    } else if (const Bytes* const bytes = find(sizes, name)) {
      options_.*bytes->field =
          static_cast<std::size_t>(integer_from(name, value, 1, std::numeric_limits<long>::max()));
    } else if (const Seconds* const time = find(times, name)) {
      options_.*time->field =
          std::max<std::uint64_t>(milliseconds_from(value, std::string(name).c_str()), 1);
    } else if (name == "ports") {
      set_ports(value);
    } else if (name == "plan_constants") {
      set_constants(value);
    } else if (name == "store") {
      store_.emplace(py::reinterpret_borrow<py::object>(value));
    } else {
      throw py::type_error("connect() has no option '" + std::string(name) + "'");
    }
  }

  const rondo_options& for_c() {
    options_.interrupted = &handler_raises;
    if (store_) {
      c_store_ = store_->for_c();
      options_.store = &c_store_;
    }
    return options_;
  }
  py::error_already_set* store_failure() { return store_ ? store_->failure() : nullptr; }

 private:
  void set_ports(py::handle value) {
    if (!py::isinstance<py::sequence>(value) || py::len(value) != 2)
      refuse_value("ports", value, "the first and the last port");
    const auto both = py::reinterpret_borrow<py::sequence>(value);
    const auto port = [&](std::size_t i) {
      return static_cast<std::uint16_t>(integer_from("ports", both[i], 1, 65535));
    };
    options_.port_first = port(0);
    options_.port_last = port(1);
  }

  // As rondo.PlanConstants: a tuple of two links and a number, a link of three numbers.
  void set_constants(py::handle value) {
    using Link = std::tuple<double, double, double>;
    try {
      const auto [host, network, reduce] = py::cast<std::tuple<Link, Link, double>>(value);
      const auto link = [](const Link& costs) {
        return rondo_link_costs{std::get<0>(costs), std::get<1>(costs), std::get<2>(costs)};
      };
      constants_ = {sizeof(constants_), link(host), link(network), reduce};
    } catch (const py::cast_error&) {
      refuse_value("plan_constants", value, "a rondo.PlanConstants");
    }
    options_.plan_constants = &constants_;
  }

  rondo_options options_{};
  rondo_constants constants_{};
  std::deque<std::string> texts_{};
  std::optional<PythonStore> store_{};
  rondo_store c_store_{};
};

}  // namespace

std::shared_ptr<Session> connect(const py::dict& given) {
  Options options;
  for (const auto& [name, value] : given)
    if (!value.is_none()) options.set(py::cast<std::string_view>(name), value);
  rondo_communicator* communicator = nullptr;
  Outcome outcome;
  {
    const rondo_options& for_c = options.for_c();
    const Unlocked unlocked;
    outcome = Outcome::of(rondo_connect(&for_c, &communicator));
  }
  if (PyErr_Occurred() != nullptr) {
    rondo_destroy(communicator);
    throw py::error_already_set();
  }
  if (!outcome.failed()) return std::make_shared<Session>(communicator);
  if (py::error_already_set* const cause = options.store_failure()) {
    if (!cause->matches(PyExc_Exception)) throw *cause;  // KeyboardInterrupt and the like
    const py::object exception = exception_of(outcome);
    py::raise_from(*cause, py::type::of(exception).ptr(), outcome.message.c_str());
    throw py::error_already_set();
  }
  raise(outcome);
}

}  // namespace rondo::python
