//! A report before it is Markdown or HTML: headings, sentences, tables and charts. What is said is
//! decided once, in the sections; how it looks, in the two writers.

/// A whole report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Its heading.
    pub title: String,
    /// One line below the heading.
    pub subtitle: String,
    /// In order.
    pub sections: Vec<Section>,
}

/// A part of it with a heading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// In order.
    pub blocks: Vec<Block>,
}

/// What a section is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A paragraph that a reader should not miss: what failed, what limits the figures.
    Warning(String),
    /// A smaller heading.
    Heading(String),
    /// A table.
    Table(Table),
    /// Bars that lie, one below the other.
    Bars(Bars),
    /// Bars that stand, in groups.
    Groups(Groups),
    /// Curves.
    Curves(Curves),
    /// A text as it was: a configuration, a command.
    Verbatim(String),
    /// What is there for those who ask for it.
    Folded(Folded),
}

/// Blocks below a line that opens them.
#[derive(Debug, Clone, PartialEq)]
pub struct Folded {
    /// The line.
    pub summary: String,
    /// What it opens.
    pub blocks: Vec<Block>,
}

/// A table; its first column names the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// What it shows, above it; empty if the heading says it.
    pub caption: String,
    /// The columns' titles.
    pub head: Vec<String>,
    /// As many cells in each as there are titles.
    pub rows: Vec<Row>,
    /// The columns that are about us.
    pub our_columns: Vec<usize>,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Its cells.
    pub cells: Vec<Entry>,
    /// Whether it is about us.
    pub ours: bool,
    /// Whether it was published elsewhere and not measured here.
    pub published: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The figure.
    pub text: String,
    /// What belongs to it in smaller print: its interval.
    pub detail: String,
}

/// Bars that lie, one below the other, each with its name and its figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    /// What is drawn, with its unit.
    pub caption: String,
    /// In order.
    pub bars: Vec<Bar>,
    /// What the thin bars are; empty if there are none.
    pub published: String,
    /// Whether Markdown draws it too, from blocks.
    pub in_markdown: bool,
}

/// A bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Whose it is, as it is written there.
    pub name: String,
    /// The contender's name in the result.
    pub contender: String,
    /// Its length.
    pub value: f64,
    /// The figure at its end.
    pub text: String,
    /// The whisker: the interval's ends.
    pub whisker: Option<(f64, f64)>,
    /// The colour of its series; lying bars need none, since each has its name.
    pub series: usize,
    /// Whether it is ours.
    pub ours: bool,
    /// A thin bar below, on a scale of its own: its length and its figure.
    pub published: Option<(f64, String)>,
}

/// Bars that stand, in groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    /// What is drawn, with its unit.
    pub caption: String,
    /// The groups, each with its name below.
    pub groups: Vec<(String, Vec<Bar>)>,
    /// Who is drawn, in the order of the bars.
    pub series: Vec<Series>,
}

/// A name and its colour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The number of its colour.
    pub colour: usize,
    /// Whether it is ours.
    pub ours: bool,
    /// Whether it was published elsewhere: drawn dashed and grey.
    pub published: bool,
}

/// Curves over an axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// What is drawn, with its unit.
    pub caption: String,
    /// The axis below.
    pub across: Axis,
    /// The axis at the left.
    pub up: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// An axis: how long it is and what is written at it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// What it counts.
    pub title: String,
    /// Where (0 to 1) something is written, and what.
    pub ticks: Vec<(f64, String)>,
}

/// A curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Whose it is.
    pub series: Series,
    /// Its points.
    pub points: Vec<Point>,
    /// Whether the points are marked: measured ones are, those of a fine curve aren't.
    pub marked: bool,
}

/// A point of a curve; both axes go from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// Along the axis below.
    pub across: f64,
    /// Along the axis at the left.
    pub up: f64,
    /// The interval's ends along the axis at the left.
    pub whisker: Option<(f64, f64)>,
    /// What it says when pointed at.
    pub text: String,
}

impl Entry {
    /// A figure alone.
    pub fn new(text: impl Into<String>) -> Entry {
        Entry {
            text: text.into(),
            detail: String::new(),
        }
    }

    /// A figure and its smaller print.
    pub fn with(text: impl Into<String>, detail: impl Into<String>) -> Entry {
        Entry {
            text: text.into(),
            detail: detail.into(),
        }
    }

    /// Nothing was measured.
    pub fn none() -> Entry {
        Entry::new("–")
    }
}

impl From<String> for Entry {
    fn from(text: String) -> Entry {
        Entry::new(text)
    }
}

impl From<&str> for Entry {
    fn from(text: &str) -> Entry {
        Entry::new(text)
    }
}
