//! Structure of a report, independent of Markdown and HTML: headings, paragraphs, tables and charts. The
//! sections define the content; the two writers define the appearance.

/// A complete report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Document {
    /// Main heading.
    pub title: String,
    /// Line below the main heading.
    pub subtitle: String,
    /// Sections in order.
    pub sections: Vec<Section>,
}

/// A section of the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Section {
    /// Heading of the section.
    pub heading: String,
    /// Blocks in order.
    pub blocks: Vec<Block>,
}

/// An element of a section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    /// A paragraph.
    Text(String),
    /// A highlighted paragraph: failures, and limits of the figures.
    Warning(String),
    /// A subheading.
    Heading(String),
    /// A table.
    Table(Table),
    /// Horizontal bars, one below the other.
    Bars(Bars),
    /// Vertical bars in groups.
    Groups(Groups),
    /// Curves.
    Curves(Curves),
    /// Preformatted text: a configuration, a command.
    Verbatim(String),
    /// Blocks hidden until opened by the reader.
    Folded(Folded),
}

/// Blocks below a summary line, closed at first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Folded {
    /// The summary line.
    pub summary: String,
    /// The hidden blocks.
    pub blocks: Vec<Block>,
}

/// A table; its first column names the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// Caption above the table; empty if the heading suffices.
    pub caption: String,
    /// Titles of the columns.
    pub head: Vec<String>,
    /// Rows, with as many cells as titles.
    pub rows: Vec<Row>,
    /// Indices of the columns about anthill.
    pub our_columns: Vec<usize>,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    /// Cells of the row.
    pub cells: Vec<Entry>,
    /// True if the row is about anthill.
    pub ours: bool,
    /// True if the figures were published elsewhere rather than measured.
    pub published: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Entry {
    /// The figure.
    pub text: String,
    /// Detail in small print, such as the interval.
    pub detail: String,
}

/// Horizontal bars, one below the other, each with name and figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bars {
    /// Title of the chart with the unit.
    pub caption: String,
    /// Bars in order.
    pub bars: Vec<Bar>,
    /// Explanation of the thin bars; empty without thin bars.
    pub published: String,
    /// True if the Markdown writer also draws the chart, with block characters.
    pub in_markdown: bool,
}

/// A bar of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bar {
    /// Label of the bar.
    pub name: String,
    /// The contender's name in the result.
    pub contender: String,
    /// Length of the bar.
    pub value: f64,
    /// Figure at the end of the bar.
    pub text: String,
    /// Ends of the interval, drawn as a whisker.
    pub whisker: Option<(f64, f64)>,
    /// Colour number of the series; unused by horizontal bars, which have names.
    pub series: usize,
    /// True for a bar of anthill.
    pub ours: bool,
    /// Published value and figure, drawn as a thin bar below on a separate scale.
    pub published: Option<(f64, String)>,
}

/// Vertical bars in groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Groups {
    /// Title of the chart with the unit.
    pub caption: String,
    /// Groups with the names below them.
    pub groups: Vec<(String, Vec<Bar>)>,
    /// Series for the legend, in the order of the bars.
    pub series: Vec<Series>,
}

/// Name and colour of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    /// Name of the series.
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    /// True for a series of anthill.
    pub ours: bool,
    /// True for published figures, drawn dashed and grey.
    pub published: bool,
}

/// A chart of curves.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Curves {
    /// Title of the chart with the unit.
    pub caption: String,
    /// Horizontal axis.
    pub across: Axis,
    /// Vertical axis.
    pub up: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// An axis with its ticks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Axis {
    /// Title of the axis.
    pub title: String,
    /// Positions (0 to 1) and texts of the ticks.
    pub ticks: Vec<(f64, String)>,
}

/// A curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Curve {
    /// Name and colour of the curve.
    pub series: Series,
    /// Points of the curve.
    pub points: Vec<Point>,
    /// True if the points are marked: measured points are, points of a histogram's curve are not.
    pub marked: bool,
}

/// A point of a curve; both coordinates are from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Point {
    /// Horizontal position.
    pub across: f64,
    /// Vertical position.
    pub up: f64,
    /// Ends of the interval on the vertical axis.
    pub whisker: Option<(f64, f64)>,
    /// Tooltip text.
    pub text: String,
}

impl Entry {
    /// Returns a cell with a figure only.
    pub(crate) fn new(text: impl Into<String>) -> Entry {
        Entry {
            text: text.into(),
            detail: String::new(),
        }
    }

    /// Returns a cell with a figure and a detail in small print.
    pub(crate) fn with(text: impl Into<String>, detail: impl Into<String>) -> Entry {
        Entry {
            text: text.into(),
            detail: detail.into(),
        }
    }

    /// Returns the cell for a missing value.
    pub(crate) fn none() -> Entry {
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
