// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo::base {

// The field of an item that leads to the next one.
struct LinkedByNext {
  static auto& of(auto& item) noexcept { return item.next; }
};

// First in, first out, without memory of its own: the items are linked by a field of theirs, so an
// item is in one list of that field at most. The field may point to a base class of T. Nothing here
// allocates or takes a lock.
template <class T, class Linked = LinkedByNext>
class Fifo {
 public:
  T* first() const noexcept { return first_; }
  bool empty() const noexcept { return first_ == nullptr; }
  static T* after(T& item) noexcept { return static_cast<T*>(Linked::of(item)); }
  void push(T& item) noexcept {
    Linked::of(item) = nullptr;
    if (first_ == nullptr)
      first_ = &item;
    else
      Linked::of(*last_) = &item;
    last_ = &item;
  }
  // Takes out the first item that passes the test; null when none does.
  template <class Test>
  T* take(Test test) noexcept {
    T* before = nullptr;
    for (T* item = first_; item != nullptr; before = item, item = after(*item)) {
      if (!test(*item)) continue;
      if (before == nullptr)
        first_ = after(*item);
      else
        Linked::of(*before) = after(*item);
      if (last_ == item) last_ = before;
      Linked::of(*item) = nullptr;
      return item;
    }
    return nullptr;
  }
  // The first item that passes the test; null when none does.
  template <class Test>
  T* find(Test test) const noexcept {
    T* item = first_;
    while (item != nullptr && !test(*item)) item = after(*item);
    return item;
  }
  bool contains(const T& wanted) const noexcept {
    return find([&](const T& item) { return &item == &wanted; }) != nullptr;
  }
  T* pop() noexcept {
    return take([](const T&) { return true; });
  }
  void remove(const T& item) noexcept {
    take([&](const T& other) { return &other == &item; });
  }
  // Forgets all items. They stay linked.
  void clear() noexcept { first_ = last_ = nullptr; }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace rondo::base
