// SPDX-License-Identifier: Apache-2.0
//
// The operations of _core.Communicator. Elements of Python may be several of Rondo, and messages to
// users count those of Python. So what buffers hold is checked here.
#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "python/core/error.h"
#include "python/core/module.h"
#include "python/core/work.h"

namespace rondo::python {

namespace {

using Shared = const std::shared_ptr<Session>&;
using Counts = std::vector<std::size_t>;

// One object for all operations that have ended: nothing is allocated on the usual path. It lives
// as long as the process.
py::object ended_work() {
  static const py::handle one = py::cast(std::make_unique<Work>()).release();
  return py::reinterpret_borrow<py::object>(one);
}

// A call of Python: reads its arguments, and runs it.
class Request {
 public:
  Request(const char* operation, Shared session, const py::dict& keywords)
      : operation_(operation), session_(session), call_(call_from(keywords)) {}

  std::size_t ranks() const { return static_cast<std::size_t>(session_->size()); }
  bool here(int root) const { return root == session_->rank(); }
  std::size_t own(const Counts& counts) const {
    return counts[static_cast<std::size_t>(session_->rank())];
  }
  Lane lane() const {
    return call_.options.priority == Priority::urgent ? Lane::urgent : Lane::bulk;
  }
  void set_dtype(py::handle dtype) { call_.dtype = dtype_from(dtype); }

  View in(py::handle object, const char* name = "data") const {
    return {object, operation_, name, Access::read, call_.dtype};
  }
  View out(py::handle object, const char* name = "out") const {
    return {object, operation_, name, Access::write, call_.dtype};
  }
  // Without `out` in place: the operation writes to `data`.
  Borrowed both(py::handle data, py::handle out_or_none) const {
    if (out_or_none.is_none()) return {out(data, "data"), {}, {}};
    Borrowed buffers{in(data), out(out_or_none), {}};
    require_times(buffers.in, "data", buffers.out, "out", 1);
    return buffers;
  }

  // `large` has `times` as many elements as `small`, of the same type.
  void require_times(const View& small, const char* small_name, const View& large,
                     const char* large_name, std::size_t times) const {
    require_alike(small, small_name, large, large_name);
    if (large.items() / times != small.items() || large.items() % times != 0)
      fail(std::string(large_name) + " has " + std::to_string(large.items()) + " elements and " +
           small_name + " has " + std::to_string(small.items()) + ": " +
           (times == 1 ? "give the same number"
                       : std::string(large_name) + " needs " + std::to_string(times) +
                             " times as many, a block for each rank"));
  }
  // Both have elements of one type, as many as the counts say.
  void require_items(const Borrowed& buffers, std::size_t in_items, std::size_t out_items) const {
    require_alike(buffers.in, "data", buffers.out, "out");
    require_items(buffers.in, "data", in_items);
    require_items(buffers.out, "out", out_items);
  }
  ReduceOp reduction(py::handle op, const View& view) const {
    const ReduceOp value = op_from(op);
    if (const std::string_view why = why_not_reduced(view.element(), value); !why.empty())
      fail(std::string(why));
    return value;
  }
  // One count for each rank, in elements of Python.
  Counts counts(py::handle object, const char* name = "counts") const {
    Counts all;
    try {
      all = py::cast<Counts>(py::list(py::reinterpret_borrow<py::object>(object)));
    } catch (const py::cast_error&) {
      fail(std::string(name) + " must be integers, 0 or more");
    }
    if (all.size() != ranks())
      fail(std::string(name) + " has " + std::to_string(all.size()) +
           " counts: give one for each of the " + std::to_string(ranks()) + " ranks");
    return all;
  }
  std::uint32_t tag(py::handle tag) const {
    const unsigned long value = PyLong_Check(tag.ptr()) ? PyLong_AsUnsignedLong(tag.ptr()) : ~0UL;
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (value > std::numeric_limits<std::uint32_t>::max())
      fail(py::str("tag is {!r}: give an integer from 0 to 4294967295").format(tag));
    return static_cast<std::uint32_t>(value);
  }
  std::size_t sum_of(const Counts& counts) const {
    std::size_t sum = 0;
    for (const std::size_t count : counts)
      if (__builtin_add_overflow(sum, count, &sum))
        fail("the counts add up to more elements than memory can hold");
    return sum;
  }
  [[noreturn]] void fail(const std::string& why) const {
    refuse(std::string(operation_) + ": " + why);
  }

  // Runs a collective of Rondo, whose arguments are input, output and these, and returns its Work.
  template <class Collective, class... Arguments>
  py::object run(Borrowed&& buffers, const Collective& collective,
                 const Arguments&... arguments) const {
    return run(lane(), std::move(buffers), [&](auto& c, auto& with, auto& options) {
      return (c.*collective)(with.input(), with.output(), arguments..., options);
    });
  }
  // Runs start(communicator, buffers, options) in this lane, likewise.
  template <class Start>
  py::object run(Lane lane, Borrowed&& buffers, const Start& start) const {
    if (!call_.wait) return py::cast(started(lane, std::move(buffers), start));
    const Work ended(session_, lane, std::move(buffers), call_, start);
    return ended_work();
  }
  template <class Start>
  std::unique_ptr<Work> started(Lane lane, Borrowed&& buffers, const Start& start) const {
    return std::make_unique<Work>(session_, lane, std::move(buffers), call_, start);
  }

 private:
  void require_alike(const View& a, const char* a_name, const View& b, const char* b_name) const {
    if (!(a.element() == b.element()))
      fail(std::string(a_name) + " and " + b_name +
           " have elements of different types: give the same type, or dtype=");
  }
  void require_items(const View& view, const char* name, std::size_t items) const {
    if (view.items() != items)
      fail(std::string(name) + " has " + std::to_string(view.items()) +
           " elements, but the counts say " + std::to_string(items));
  }

  const char* operation_;
  Shared session_;
  Call call_;
};

// Holds the same counts in elements of Rondo. Their sum fits in memory.
Counts in_parts(Counts counts, const View& view) {
  for (std::size_t& count : counts) count *= view.element().parts;
  return counts;
}

py::object all_reduce(Shared session, py::handle data, py::handle out, py::handle op,
                      const py::dict& keywords) {
  const Request read("all_reduce", session, keywords);
  Borrowed both = read.both(data, out);
  const ReduceOp how = read.reduction(op, both.in);
  return read.run(std::move(both), &Communicator::all_reduce, how);
}

py::object reduce(Shared session, py::handle data, py::handle out, int root, py::handle op,
                  const py::dict& keywords) {
  const Request read("reduce", session, keywords);
  Borrowed both = read.here(root) ? read.both(data, out) : Borrowed{read.in(data), {}, {}};
  const ReduceOp how = read.reduction(op, both.in);
  return read.run(std::move(both), &Communicator::reduce, how, root);
}

py::object broadcast(Shared session, py::handle data, int root, const py::dict& keywords) {
  const Request read("broadcast", session, keywords);
  Borrowed one{read.here(root) ? read.in(data) : read.out(data, "data"), {}, {}};
  return read.run(std::move(one), &Communicator::broadcast, root);
}

py::object all_gather(Shared session, py::handle data, py::handle out, const py::dict& keywords) {
  const Request read("all_gather", session, keywords);
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_times(both.in, "data", both.out, "out", read.ranks());
  return read.run(std::move(both), &Communicator::all_gather);
}

py::object reduce_scatter(Shared session, py::handle data, py::handle out, py::handle op,
                          const py::dict& keywords) {
  const Request read("reduce_scatter", session, keywords);
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_times(both.out, "out", both.in, "data", read.ranks());
  const ReduceOp how = read.reduction(op, both.in);
  return read.run(std::move(both), &Communicator::reduce_scatter, how);
}

py::object gather(Shared session, py::handle data, py::handle out, int root,
                  const py::dict& keywords) {
  const Request read("gather", session, keywords);
  Borrowed both{read.in(data), {}, {}};
  if (read.here(root)) {
    both.out = read.out(out);
    read.require_times(both.in, "data", both.out, "out", read.ranks());
  }
  return read.run(std::move(both), &Communicator::gather, root);
}

py::object scatter(Shared session, py::handle data, py::handle out, int root,
                   const py::dict& keywords) {
  const Request read("scatter", session, keywords);
  Borrowed both{{}, read.out(out), {}};
  if (read.here(root)) {
    both.in = read.in(data);
    read.require_times(both.out, "out", both.in, "data", read.ranks());
  }
  return read.run(std::move(both), &Communicator::scatter, root);
}

py::object all_to_all(Shared session, py::handle data, py::handle out, const py::dict& keywords) {
  const Request read("all_to_all", session, keywords);
  Borrowed both = read.both(data, out);
  if (both.in.items() % read.ranks() != 0)
    read.fail("data has " + std::to_string(both.in.items()) +
              " elements: give a multiple of the number of ranks, which is " +
              std::to_string(read.ranks()));
  return read.run(std::move(both), &Communicator::all_to_all);
}

py::object all_gather_v(Shared session, py::handle data, py::handle out, py::handle counts,
                        const py::dict& keywords) {
  const Request read("all_gather_v", session, keywords);
  const Counts items = read.counts(counts);
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_items(both, read.own(items), read.sum_of(items));
  const Counts parts = in_parts(items, both.in);
  return read.run(std::move(both), &Communicator::all_gather_v, parts);
}

py::object reduce_scatter_v(Shared session, py::handle data, py::handle out, py::handle counts,
                            py::handle op, const py::dict& keywords) {
  const Request read("reduce_scatter_v", session, keywords);
  const Counts items = read.counts(counts);
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_items(both, read.sum_of(items), read.own(items));
  const ReduceOp how = read.reduction(op, both.in);
  const Counts parts = in_parts(items, both.in);
  return read.run(std::move(both), &Communicator::reduce_scatter_v, parts, how);
}

py::object all_to_all_v(Shared session, py::handle data, py::handle send_counts, py::handle out,
                        py::handle receive_counts, const py::dict& keywords) {
  const Request read("all_to_all_v", session, keywords);
  const Counts sends = read.counts(send_counts, "send_counts"),
               receives = read.counts(receive_counts, "receive_counts");
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_items(both, read.sum_of(sends), read.sum_of(receives));
  const Counts sent = in_parts(sends, both.in), received = in_parts(receives, both.in);
  return read.run(Lane::messages, std::move(both), [&](auto& c, auto& with, auto& options) {
    return c.all_to_all_v(with.input(), sent, with.output(), received, options);
  });
}

py::object barrier(Shared session, const py::dict& keywords) {
  const Request read("barrier", session, keywords);
  return read.run(read.lane(), {},
                  [](auto& c, auto&, auto& options) { return c.barrier(options); });
}

py::object send(Shared session, py::handle data, int peer, py::handle tag,
                const py::dict& keywords) {
  const Request read("send", session, keywords);
  const std::uint32_t number = read.tag(tag);
  return read.run(Lane::messages, {read.in(data), {}, {}}, [=](auto& c, auto& with, auto& options) {
    return c.send(with.input(), peer, number, options);
  });
}

py::object receive(Shared session, py::handle out, int peer, py::handle tag,
                   const py::dict& keywords) {
  const Request read("receive", session, keywords);
  const std::uint32_t number = read.tag(tag);
  return read.run(Lane::messages, {{}, read.out(out), {}}, [=](auto& c, auto& with, auto& options) {
    return c.receive(with.output(), peer, number, options);
  });
}

// The Work of this operation knows the sender. So it cannot be ended_work(), even if the operation
// has ended.
py::object receive_any(Shared session, py::handle out, py::handle tag, const py::dict& keywords) {
  const Request read("receive_any", session, keywords);
  const std::uint32_t number = read.tag(tag);
  return py::cast(read.started(Lane::messages, {{}, read.out(out), {}},
                               [=](auto& c, auto& with, auto& options) {
                                 return c.receive_any(with.output(), number, options);
                               }));
}

// transfers: tuples (is a receive, buffer, peer, tag, dtype or None).
py::object batch(Shared session, const py::list& transfers, const py::dict& keywords) {
  const Request read("batch", session, keywords);
  Borrowed buffers;
  std::vector<Transfer> all;
  for (const py::handle each : transfers) {
    const auto fields = py::cast<py::tuple>(each);
    const bool receives = py::cast<bool>(fields[0]);
    Request own = read;
    if (!fields[4].is_none()) own.set_dtype(fields[4]);
    const View& view = buffers.more.emplace_back(receives ? own.out(fields[1]) : own.in(fields[1]));
    all.push_back({receives ? Transfer::Kind::receive : Transfer::Kind::send, view.buffer(),
                   py::cast<int>(fields[2]), read.tag(fields[3])});
  }
  return read.run(Lane::messages, std::move(buffers),
                  [&](auto& c, auto&, auto& options) { return c.batch(all, options); });
}

}  // namespace

void define_operations(py::class_<Session, std::shared_ptr<Session>>& communicator) {
  communicator.def("all_reduce", &all_reduce)
      .def("reduce", &reduce)
      .def("broadcast", &broadcast)
      .def("all_gather", &all_gather)
      .def("reduce_scatter", &reduce_scatter)
      .def("gather", &gather)
      .def("scatter", &scatter)
      .def("all_to_all", &all_to_all)
      .def("all_gather_v", &all_gather_v)
      .def("reduce_scatter_v", &reduce_scatter_v)
      .def("all_to_all_v", &all_to_all_v)
      .def("barrier", &barrier)
      .def("send", &send)
      .def("receive", &receive)
      .def("receive_any", &receive_any)
      .def("batch", &batch);
}

}  // namespace rondo::python
